# What compilers do seldom, one function for each kind of row.
	.text
	.globl _start
_start:					# no caller
	.cfi_startproc
	.cfi_undefined rip
	nop
	call drap
	hlt
	.cfi_endproc

drap:					# CFA from r10, then from memory; the frame pointer saved relative to itself
	.cfi_startproc
	lea 8(%rsp), %r10
	.cfi_def_cfa 10, 0
	and $-32, %rsp
	push -8(%r10)
	push %rbp
	mov %rsp, %rbp
	.cfi_escape 0x10,0x6,0x2,0x76,0
	push %r10
	.cfi_escape 0xf,0x3,0x76,0x78,0x6
	nop
	pop %r10
	.cfi_def_cfa 10, 0
	pop %rbp
	lea -8(%r10), %rsp
	.cfi_def_cfa 7, 8
	ret
	.cfi_endproc

trampoline:				# a signal frame
	.cfi_startproc
	.cfi_signal_frame
	.cfi_def_cfa 7, 8
	nop
	mov $15, %eax
	syscall
	.cfi_endproc

by_rbx:					# CFA from a saved register, with the frame pointer on the stack
	.cfi_startproc
	push %rbp
	.cfi_def_cfa_offset 16
	.cfi_offset 6, -16
	push %rbx
	.cfi_def_cfa_offset 24
	.cfi_offset 3, -24
	mov %rsp, %rbx
	.cfi_def_cfa 3, 24
	nop
	.cfi_def_cfa 7, 24
	pop %rbx
	.cfi_def_cfa_offset 16
	pop %rbp
	.cfi_def_cfa_offset 8
	.cfi_restore 6
	ret
	.cfi_endproc

moved_frame_pointer:			# the frame pointer in another register
	.cfi_startproc
	mov %rbp, %rax
	.cfi_register 6, 0
	nop
	mov %rax, %rbp
	.cfi_restore 6
	ret
	.cfi_endproc

moved_return_address:			# the return address in another register
	.cfi_startproc
	pop %rcx
	.cfi_def_cfa_offset 0
	.cfi_register rip, rcx
	jmp *%rcx
	.cfi_endproc

high_registers:				# control words that would be negative if read as signed
	.cfi_startproc
	.cfi_def_cfa 15, 8
	nop
	.cfi_def_cfa 17, 8
	nop
	.cfi_def_cfa 31, 8
	nop
	.cfi_def_cfa 40, 8
	ret
	.cfi_endproc

empty:					# no code at all, at the address of the next
	.cfi_startproc
	.cfi_endproc

big:					# row starts and offsets of one, two and four bytes
	.cfi_startproc
	sub $400, %rsp
	.cfi_adjust_cfa_offset 400
	.skip 300, 0x90
	sub $40000, %rsp
	.cfi_adjust_cfa_offset 40000
	.skip 70000, 0x90
	add $40400, %rsp
	.cfi_adjust_cfa_offset -40400
	ret
	.cfi_endproc
