// Frame records, return addresses signed with both keys, a leaf, a return address saved alone, no
// caller, a signal frame.
	.text
plain:
	.cfi_startproc
	stp x29, x30, [sp, -32]!
	.cfi_def_cfa_offset 32
	.cfi_offset 29, -32
	.cfi_offset 30, -24
	mov x29, sp
	.cfi_def_cfa_register 29
	nop
	ldp x29, x30, [sp], 32
	.cfi_restore 30
	.cfi_restore 29
	.cfi_def_cfa 31, 0
	ret
	.cfi_endproc
signed_a:
	.cfi_startproc
	hint 25
	.cfi_negate_ra_state
	stp x29, x30, [sp, -16]!
	.cfi_def_cfa_offset 16
	.cfi_offset 29, -16
	.cfi_offset 30, -8
	ldp x29, x30, [sp], 16
	.cfi_restore 30
	.cfi_restore 29
	.cfi_def_cfa_offset 0
	hint 29
	.cfi_negate_ra_state
	ret
	.cfi_endproc
signed_b:
	.cfi_startproc
	.cfi_b_key_frame
	hint 27
	.cfi_negate_ra_state
	stp x29, x30, [sp, -16]!
	.cfi_def_cfa_offset 16
	.cfi_offset 29, -16
	.cfi_offset 30, -8
	ldp x29, x30, [sp], 16
	.cfi_restore 30
	.cfi_restore 29
	.cfi_def_cfa_offset 0
	hint 31
	.cfi_negate_ra_state
	ret
	.cfi_endproc
leaf:
	.cfi_startproc
	add x0, x0, x1
	ret
	.cfi_endproc
ra_only:
	.cfi_startproc
	str x30, [sp, -16]!
	.cfi_def_cfa_offset 16
	.cfi_offset 30, -16
	bl leaf
	ldr x30, [sp], 16
	.cfi_restore 30
	.cfi_def_cfa_offset 0
	ret
	.cfi_endproc
	.globl _start
_start:
	.cfi_startproc
	.cfi_undefined x30
	bl plain
	.cfi_endproc
tramp:
	.cfi_startproc
	.cfi_signal_frame
	.cfi_def_cfa 31, 0
	mov x8, 139
	svc 0
	.cfi_endproc
