# ebpf.mk: what the kernel runs, compiled into headers.

# The eBPF programs, as a header with their bytes and their names.
BPF_SRC    := $(wildcard ebpf/*.h ebpf/*.c)
# Ubuntu's in the PATH is a script that looks for one of the kernel that runs.
BPFTOOL    := $(firstword $(wildcard /usr/lib/linux-tools/*/bpftool) bpftool)
SKELETON   := $(GEN)/redirect.skel.h $(GEN)/level.skel.h
# Without DWARF: libbpf reads BTF, and DWARF has lines of this machine's headers, so each update of them made other bytes.
$(GEN)/%.bpf.o: ebpf/%.bpf.c $(BPF_SRC) ebpf/ebpf.mk
	@mkdir -p $(GEN); echo "  BPF   $<"; clang -target bpf -O2 -g -Wall -Wextra -Werror -Wno-unused-function $(SAME) -I/usr/include/$(shell gcc -dumpmachine) -c $< -o $@.dwarf
	@$(BPFTOOL) gen object $@ $@.dwarf && rm $@.dwarf
$(GEN)/%.skel.h: $(GEN)/%.bpf.o
	@{ echo '// NOLINTBEGIN' && $(BPFTOOL) gen skeleton $< name $*_bpf && echo '// NOLINTEND'; } >$@
