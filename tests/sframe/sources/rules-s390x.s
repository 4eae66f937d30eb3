# Saves on the stack and in floating-point registers, a frame pointer saved alone, a CFA from r1.
	.text
	.globl _start
_start:
	.cfi_startproc
	stmg %r11,%r15,88(%r15)
	.cfi_rel_offset 11, 88
	.cfi_rel_offset 14, 112
	.cfi_rel_offset 15, 120
	aghi %r15,-400
	.cfi_adjust_cfa_offset 400
	lgr %r11,%r15
	.cfi_def_cfa_register 11
	lmg %r11,%r15,488(%r11)
	.cfi_restore 14
	.cfi_restore 11
	.cfi_def_cfa 15, 160
	br %r14
	.cfi_endproc
leaf:
	.cfi_startproc
	ldgr %f2,%r11
	.cfi_register 11, 17
	ldgr %f0,%r14
	.cfi_register 14, 16
	lgr %r11,%r15
	.cfi_def_cfa_register 11
	lgdr %r11,%f2
	.cfi_restore 11
	.cfi_restore 14
	.cfi_def_cfa_register 15
	br %r14
	.cfi_endproc
fponly:
	.cfi_startproc
	stg %r11,88(%r15)
	.cfi_rel_offset 11, 88
	nop
	br %r14
	.cfi_endproc
clash:
	.cfi_startproc
	lgr %r1,%r15
	.cfi_def_cfa_register 1
	aghi %r15,-400
	br %r14
	.cfi_endproc
