# agentd: build, test and run.  `make help` lists what there is.
#
# A line "LINK: tests/fake/loop.c ..." in a unit test's head comment says what it is linked with: fakes, and what tests share.
# Everything else comes from the library, so a test is one real module on faked neighbours.

SHELL      := /bin/bash
MAKEFLAGS  += --no-builtin-rules
.DEFAULT_GOAL := all
.DELETE_ON_ERROR:

VERSION    := $(shell cat VERSION)
# Of a copy of the sources without a repository, as a package is built from, it is told: AGENTD_COMMIT=...
ifeq ($(origin AGENTD_COMMIT),undefined)
AGENTD_COMMIT := $(shell c=$$(git rev-parse --short=12 HEAD 2>/dev/null) && \
	echo "$$c$$(git --no-optional-locks diff --quiet HEAD -- . || echo .dirty)")
endif
export AGENTD_COMMIT
VERSION_TEXT := $(VERSION)$(addprefix +,$(AGENTD_COMMIT))
PREFIX     ?= /usr/local
BUILD      ?= build
# release | quick | asan | tsan | fuzz: each has a tree of its own; quick is for make run: nothing is optimized, and libraries are shared
MODE       ?= release
# amd64 | arm64: not this machine's is built with Debian's cross compiler against packages in a sysroot; so is an image (FRESH=1)
# for both, or one would have what this machine was last updated to
HOST_ARCH  := $(if $(filter aarch64,$(shell uname -m)),arm64,amd64)
ARCH       ?= $(HOST_ARCH)
TRIPLET    := $(if $(filter arm64,$(ARCH)),aarch64,x86_64)-linux-gnu
CROSS      := $(if $(FRESH),$(ARCH),$(filter-out $(HOST_ARCH),$(ARCH)))
SYSROOT    := $(if $(CROSS),$(BUILD)/sysroot-$(ARCH))
OUT        := $(BUILD)/$(MODE)$(if $(CROSS),-$(ARCH))
GEN        := $(BUILD)/gen

# Nothing of what this machine may have for crossing but the compiler, which is of its release as all packages are.
GCC_MAJOR  = $(shell gcc -dumpversion | cut -d. -f1)
GCC_DIR    = $(SYSROOT)/usr/lib/gcc/$(TRIPLET)/$(GCC_MAJOR)
GCC_CROSS  = $(TRIPLET)-gcc --sysroot=$(SYSROOT) -B$(SYSROOT)/usr/lib/$(TRIPLET)/ -B$(GCC_DIR)/ \
	-nostdinc $(addprefix -isystem ,$(GCC_DIR)/include $(addprefix $(SYSROOT)/usr/include,/$(TRIPLET) /))
CC_release := $(if $(CROSS),$(GCC_CROSS),gcc)
CC_quick   := gcc
CC_asan    := gcc
CC_tsan    := clang
CC_fuzz    := clang
CC         := $(CC_$(MODE))
PKG_CONFIG := $(if $(CROSS),PKG_CONFIG_LIBDIR=$(SYSROOT)/usr/lib/$(TRIPLET)/pkgconfig) pkg-config

# Cutting a text to its buffer is what snprintf is for here (gcc alone knows the warning).
WARN       := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wvla -Werror $(if $(filter %gcc,$(CC)),-Wno-format-truncation)
# The same bytes from whatever directory.
SAME       := '-ffile-prefix-map=$(CURDIR)=.'
# Looked at by lint (`hardening`); SECURITY.md says what it is worth.
BRANCHES   := $(if $(filter amd64,$(ARCH)),-fcf-protection,-mbranch-protection=standard)
MODE_release := -O2 -g -D_FORTIFY_SOURCE=3 -fstack-protector-strong -fstack-clash-protection $(BRANCHES) \
	-ffunction-sections -fdata-sections $(SAME)
MODE_quick := -O0 $(SAME)
# -g1 is what a stack trace needs.
MODE_asan  := -O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
MODE_tsan  := -O1 -g1 -fsanitize=thread
MODE_fuzz  := -O1 -g1 -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
CFLAGS     := -std=gnu11 -fPIE $(WARN) $(MODE_$(MODE)) -D_GNU_SOURCE -I$(GEN) -iquote agentd -iquote .
# Debian 12's linker for arm64 would only say that it does not know it.
PACKED_amd64 := -Wl,-z,pack-relative-relocs
LINK_release := -pie -Wl,-z,relro,-z,now,-z,noexecstack $(PACKED_$(ARCH)) -Wl,--gc-sections
LINK_quick := -pie
# Of the hundreds of tests: in a third of the time, where it is.
LLD        := $(if $(shell command -v ld.lld),-fuse-ld=lld)
LINK_asan  := -fsanitize=address,undefined $(LLD)
LINK_tsan  := -fsanitize=thread $(LLD)
LINK_fuzz  := -fsanitize=fuzzer,address,undefined $(LLD)
LDFLAGS    := $(LINK_$(MODE))

# Debian 13's libelf.a lacks a part of itself: what cannot be linked statically is shared.
ELF_MAIN   := void *elf_begin(int, int, void *); int main(void) { return !elf_begin(-1, 0, 0); }
ELF_STATIC  = $(filter -l%,$(shell $(PKG_CONFIG) --libs-only-l --static libelf))
ELF_LIBS    = $(shell echo '$(ELF_MAIN)' | $(CC) -x c - -o /dev/null -Wl,-Bstatic $(ELF_STATIC) -Wl,-Bdynamic 2>/dev/null \
	&& echo $(ELF_STATIC) -Wl,-Bdynamic || echo -lz -Wl,-Bdynamic -lelf)
# grpc goes into the released worker statically: it starts in 2 ms instead of 10 (process-split.md 0.4).
BROKER_LIBS = -Wl,-Bstatic -lbpf $(ELF_LIBS)
LIBS       := -lgrpc -lgpr -levent -lprotobuf-c -ljansson -lyaml -lldns -lssl -lcrypto -lpthread -lm
# Ubuntu has no libcares.a.
NOT_STATIC  = $(if $(filter %/libcares.a,$(shell $(CC) -print-file-name=libcares.a)),,-lcares)
LIBS_STATIC = -Wl,-Bstatic -Wl,--start-group $(filter-out $(NOT_STATIC),$(sort $(shell $(PKG_CONFIG) --libs-only-l --static grpc re2)) -levent \
	-lprotobuf-c -ljansson -lyaml -lldns -lssl -lcrypto -lcares -lz -lstdc++) -Wl,--end-group -Wl,-Bdynamic $(NOT_STATIC) -lm -lpthread -ldl \
	-static-libgcc
# libssl inside the worker has SSL_read() and SSL_write() itself: ours take their place (agentd/rpc/tap.h).
TAP        := -Wl,--wrap=SSL_read,--wrap=SSL_write,--defsym=__wrap_SSL_read=rpc_tap_read,--defsym=__wrap_SSL_write=rpc_tap_write
# LINKS=shared (the .deb): a library that has security updates of its own comes from the system; grpc and
# what only it needs stay inside.
LINKS      ?= static
OTHER_LIBS := $(filter-out -lgrpc -lgpr,$(LIBS)) -lz
LIBS_SHARED = -Wl,-Bstatic -Wl,--start-group $(filter-out $(OTHER_LIBS) $(NOT_STATIC) -ldl -lrt,$(filter -l%,$(LIBS_STATIC))) -Wl,--end-group \
	-Wl,-Bdynamic $(NOT_STATIC) $(OTHER_LIBS) -static-libgcc
CTL_LIBS_shared := -levent -ljansson -lyaml -lpthread -lm
CTL_LIBS_static := -Wl,-Bstatic -levent -ljansson -lyaml -Wl,-Bdynamic -lpthread -lm
INJECTOR_LIBS_shared := -levent_openssl -lssl -levent -ljansson -lyaml -lcrypto -lpthread -lm
INJECTOR_LIBS_static = -Wl,-Bstatic -levent_openssl -levent -ljansson -lyaml $(shell $(PKG_CONFIG) --libs-only-l --static libssl) -Wl,-Bdynamic -lpthread -lm -ldl
RELEASE_LIBS = $(if $(filter shared,$(LINKS)),$(LIBS_SHARED),$(LIBS_STATIC))
RELEASED   := $(filter release,$(MODE))
WORKER_LIBS = $(if $(RELEASED),$(RELEASE_LIBS) $(if $(filter static,$(LINKS)),$(TAP)),$(LIBS))
CTL_LIBS    = $(CTL_LIBS_$(if $(RELEASED),$(LINKS),shared))
INJECTOR_LIBS = $(INJECTOR_LIBS_$(if $(RELEASED),$(LINKS),shared))
# What the linker took, for the SBOM.
TAKEN       = -Wl,-t,-t >$@.inputs

PROTOS     := $(sort $(shell find proto -name '*.proto'))
PB_SRC     := $(PROTOS:proto/%.proto=$(GEN)/%.pb-c.c)
# A library is a folder, a program is a folder with a main.c. common/ and border/ are in all of them, and so libc and nothing else
# (lint looks at `ldd`).
folder      = $(sort $(shell find $(addprefix agentd/,$(1)) -name '*.c'))
COMMON_SRC := $(call folder,common border)
BASE_SRC   := $(call folder,base)
RPC_SRC    := $(call folder,rpc)
MESH_SRC   := $(call folder,mesh)
INJECT_SRC := $(call folder,inject)
BROKER_SRC := $(call folder,broker)
WORKER_SRC := $(call folder,worker)
INJECTOR_SRC := $(call folder,injector)
CTL_SRC    := $(call folder,ctl)
BROKER_MAIN := agentd/broker/main.c
WORKER_MAIN := agentd/worker/main.c
INJECTOR_MAIN := agentd/injector/main.c
obj        = $(patsubst %.c,$(OUT)/obj/%.o,$(filter-out $(GEN)/%,$(1))) $(patsubst $(GEN)/%.c,$(OUT)/obj/gen/%.o,$(filter $(GEN)/%,$(1)))

UNIT_SRC   := $(sort $(shell find tests/unit -name '*_test.c'))
UNIT_BIN   := $(UNIT_SRC:%.c=$(OUT)/%)
FUZZ_SRC   := $(wildcard tests/fuzz/*_fuzz.c)
FUZZ_BIN   := $(FUZZ_SRC:%.c=$(OUT)/%)

.PHONY: uninstall all help deps test unit e2e bench bench-redirect bench-pod bench-peers asan tsan fuzz fuzz-build soak lint lint-all format run install clean
.SECONDARY:

all: deps ## build the release binaries into build/release/
	@$(MAKE) -s binaries

.PHONY: binaries
binaries: $(OUT)/agentd $(OUT)/agentd-worker $(OUT)/agentctl $(OUT)/agentd-injector

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

deps: ## install missing Debian packages (NO_INSTALL=1: say which, and stop)
	@tests/tools/deps $(DEPS)

library    = $(addprefix $(OUT)/lib,$(addsuffix .a,$(1)))
# Who stands above another one comes before it.
WORKER_LIB  = $(call library,worker rpc mesh base common)
INJECT_LIB  = $(call library,inject mesh base common)
ALL_LIB     = $(call library,worker rpc inject mesh base common)
$(OUT)/libcommon.a: $(call obj,$(COMMON_SRC))
$(OUT)/libbase.a: $(call obj,$(BASE_SRC))
$(OUT)/librpc.a: $(call obj,$(RPC_SRC))
$(OUT)/libmesh.a: $(call obj,$(MESH_SRC))
$(OUT)/libinject.a: $(call obj,$(INJECT_SRC))
$(OUT)/libbroker.a: $(call obj,$(filter-out $(BROKER_MAIN),$(BROKER_SRC)))
$(OUT)/libworker.a: $(call obj,$(filter-out $(WORKER_MAIN),$(WORKER_SRC)) $(PB_SRC))
$(OUT)/libinjector.a: $(call obj,$(filter-out $(INJECTOR_MAIN),$(INJECTOR_SRC)))
$(OUT)/lib%.a:
	@rm -f $@ && ar rcs $@ $^
$(OUT)/agentd: $(call obj,$(BROKER_MAIN)) $(call library,broker common)
	@mkdir -p $(@D); echo "  LINK  $@"; $(CC) $(LDFLAGS) -o $@ $^ $(BROKER_LIBS) $(TAKEN)
$(OUT)/agentd-worker: $(call obj,$(WORKER_MAIN)) $(WORKER_LIB)
	@mkdir -p $(@D); echo "  LINK  $@"; $(CC) $(LDFLAGS) -o $@ $^ $(WORKER_LIBS) $(TAKEN)
$(OUT)/agentd-injector: $(call obj,$(INJECTOR_MAIN)) $(call library,injector) $(INJECT_LIB)
	@mkdir -p $(@D); echo "  LINK  $@"; $(CC) $(LDFLAGS) -o $@ $^ $(INJECTOR_LIBS) $(TAKEN)
$(OUT)/agentctl: $(call obj,$(CTL_SRC)) $(INJECT_LIB)
	@mkdir -p $(@D); echo "  LINK  $@"; $(CC) $(LDFLAGS) -o $@ $^ $(CTL_LIBS) $(TAKEN)

# The eBPF programs, as a header with their bytes and their names.
BPF_SRC    := $(wildcard ebpf/*.h ebpf/*.c)
# Ubuntu's in the PATH is a script that looks for one of the kernel that runs.
BPFTOOL    := $(firstword $(wildcard /usr/lib/linux-tools/*/bpftool) bpftool)
SKELETON   := $(GEN)/redirect.skel.h $(GEN)/level.skel.h
# Without DWARF: libbpf reads BTF, and DWARF has lines of this machine's headers, so each update of them made other bytes.
$(GEN)/%.bpf.o: ebpf/%.bpf.c $(BPF_SRC) Makefile
	@mkdir -p $(GEN); echo "  BPF   $<"; clang -target bpf -O2 -g -Wall -Wextra -Werror -Wno-unused-function $(SAME) -I/usr/include/$(shell gcc -dumpmachine) -c $< -o $@.dwarf
	@$(BPFTOOL) gen object $@ $@.dwarf && rm $@.dwarf
$(GEN)/%.skel.h: $(GEN)/%.bpf.o
	@{ echo '// NOLINTBEGIN' && $(BPFTOOL) gen skeleton $< name $*_bpf && echo '// NOLINTEND'; } >$@

# A script inside the worker: its text as a C string of its name.
SCRIPTS    := $(patsubst %,$(GEN)/%.h,$(notdir $(wildcard agentd/worker/envoy/*.lua tests/work/*.lua)))
quoted      = mkdir -p $(GEN); { echo 'static const char $*_lua[] ='; sed -e 's/[\\"]/\\&/g' -e 's/.*/"&\\n"/' $<; echo ';'; } >$@
$(GEN)/%.lua.h: agentd/worker/envoy/%.lua Makefile
	@$(quoted)
$(GEN)/%.lua.h: tests/work/%.lua Makefile
	@$(quoted)

# One object has the version, so that a commit is no reason to build the others anew.
$(GEN)/version: same-version
	@mkdir -p $(GEN); echo '$(VERSION_TEXT)' | cmp -s - $@ || echo '$(VERSION_TEXT)' >$@
.PHONY: same-version version
$(OUT)/obj/agentd/common/version.o: $(GEN)/version
$(OUT)/obj/agentd/common/version.o: CFLAGS += -DAGENTD_VERSION='"$(VERSION_TEXT)"'
version: ## what the programs built here call themselves
	@echo '$(VERSION_TEXT)'

# grpc's own word at run time is a version of its core's; its release is in what its package says to cmake.
GRPC_CMAKE  = $(SYSROOT)/usr/lib/$(TRIPLET)/cmake/grpc/gRPCConfigVersion.cmake
$(OUT)/obj/agentd/worker/pages/library_versions.o: CFLAGS += -DAGENTD_GRPC_VERSION='"$(shell sed -nE 's/^set\(PACKAGE_VERSION "(.*)"\)/\1/p' $(GRPC_CMAKE))"'

# Generated headers come before anything that may include them; flags are in every object.
$(OUT)/obj/%.o: %.c Makefile | $(PB_SRC) $(SKELETON) $(SCRIPTS) $(SYSROOT)
	@mkdir -p $(@D); echo "  CC    $(MODE) $<"; $(CC) $(CFLAGS) -MMD -MP -c -o $@ $<
$(OUT)/obj/gen/%.o: $(GEN)/%.c Makefile | $(PB_SRC) $(SYSROOT)
	@mkdir -p $(@D); $(CC) $(CFLAGS) -w -MMD -MP -c -o $@ $<
$(GEN)/%.pb-c.c: proto/%.proto
	@mkdir -p $(GEN); protoc-c -I proto --c_out=$(GEN) $<

# What this machine has as packages; removed, it is made anew with what Debian then has.
.PHONY: same-packages
$(BUILD)/sysroot-%: same-packages
	@helm/image/sysroot $* $@ $$(LIST=1 tests/tools/deps build | grep -E '^(lib|uthash|zlib).*-dev$$') libstdc++-$(GCC_MAJOR)-dev ca-certificates

# What a test is linked with, from its "LINK:" line; it wins over the library's module.
linked = $(addprefix $(OUT)/obj/,$(patsubst %.c,%.o,$(shell sed -n '1,12s/.*LINK: *\([^*]*\).*/\1/p' $(1))))
.SECONDEXPANSION:
# The broker's tests have the broker alone; those of the link have both of its ends.
$(OUT)/tests/unit/broker/%_test: $(OUT)/obj/tests/unit/broker/%_test.o $$(call linked,tests/unit/broker/%_test.c) $(OUT)/libbroker.a $(OUT)/libcommon.a
	@mkdir -p $(@D); echo "  LINK  $@"; $(CC) $(LDFLAGS) -o $@ $^ -lcmocka $(BROKER_LIBS)
$(OUT)/tests/unit/worker/link/%_test: $(OUT)/obj/tests/unit/worker/link/%_test.o $$(call linked,tests/unit/worker/link/%_test.c) $(call library,broker) $(WORKER_LIB)
	@mkdir -p $(@D); echo "  LINK  $@"; $(CC) $(LDFLAGS) -o $@ $^ -lcmocka $(BROKER_LIBS) $(LIBS)
$(OUT)/tests/unit/injector/%_test: $(OUT)/obj/tests/unit/injector/%_test.o $$(call linked,tests/unit/injector/%_test.c) $(call library,injector) $(INJECT_LIB)
	@mkdir -p $(@D); echo "  LINK  $@"; $(CC) $(LDFLAGS) -o $@ $^ $(INJECTOR_LIBS) -lcmocka
$(OUT)/tests/unit/%_test: $(OUT)/obj/tests/unit/%_test.o $$(call linked,tests/unit/%_test.c) $(ALL_LIB)
	@mkdir -p $(@D); echo "  LINK  $@"; $(CC) $(LDFLAGS) -o $@ $^ -lcmocka $(LIBS)
# A test that runs the program.
$(OUT)/tests/unit/ctl/agentctl_test: | $(OUT)/agentctl
# A fuzz target is linked with what it may need and no more, so that one is built without all the others' sources.
ifeq ($(MODE),fuzz)
.PHONY: same-parts
$(OUT)/parts.mk: same-parts | $(PB_SRC) $(SKELETON) $(SCRIPTS)
	@mkdir -p $(@D); tests/tools/passed parts $(FUZZ_SRC) >$@.new && { cmp -s $@.new $@ || cp $@.new $@; }
-include $(OUT)/parts.mk
endif
$(OUT)/tests/fuzz/%_fuzz: $(OUT)/obj/tests/fuzz/%_fuzz.o $$(call linked,tests/fuzz/%_fuzz.c)
	@mkdir -p $(@D); echo "  LINK  $@"; rm -f $@.a; ar qcsT $@.a $(filter $(OUT)/obj/agentd/% $(OUT)/obj/gen/%,$^)
	@$(CC) $(LDFLAGS) -o $@ $(filter $(OUT)/obj/tests/%,$^) $@.a $(LIBS) -levent_openssl $(BROKER_LIBS)
# What does one piece of work after another, to be counted (tests/work/work.h); the script's has the Lua that Envoy has.
LUA_LIBS    = $(shell $(PKG_CONFIG) --libs luajit)
$(OUT)/tests/work/status: $(call obj,$(addprefix tests/work/,status.c lua.c work.c))
	@mkdir -p $(@D); echo "  LINK  $@"; $(CC) $(LDFLAGS) -o $@ $^ $(LUA_LIBS)
$(OUT)/tests/work/review: $(call obj,tests/work/review.c tests/work/work.c) $(call library,injector) $(INJECT_LIB)
	@mkdir -p $(@D); echo "  LINK  $@"; $(CC) $(LDFLAGS) -o $@ $^ $(INJECTOR_LIBS)
# The same of what a fuzz target does with an input: its parser, and its laws.
fuzz_lib    = $(if $(filter broker_%,$(1)),$(OUT)/libbroker.a $(OUT)/libcommon.a,$(if $(filter injector_%,$(1)),$(call library,injector) $(INJECT_LIB),$(ALL_LIB)))
$(OUT)/tests/work/of/%: $(OUT)/obj/tests/fuzz/%_fuzz.o $(call obj,$(addprefix tests/work/,target.c work.c)) $$(call linked,tests/fuzz/%_fuzz.c) $$(call fuzz_lib,$$*)
	@mkdir -p $(@D); echo "  LINK  $@"; $(CC) $(LDFLAGS) -o $@ $^ $(if $(filter broker_%,$*),$(BROKER_LIBS),$(if $(filter injector_%,$*),$(INJECTOR_LIBS),$(LIBS)))
# The same beside libFuzzer, which is told what each input cost.
$(OUT)/tests/cost/%_fuzz: $(OUT)/obj/tests/fuzz/%_fuzz.o $(call obj,tests/fuzz/cost.c) $$(call linked,tests/fuzz/%_fuzz.c) $$(call fuzz_lib,$$*)
	@mkdir -p $(@D); echo "  LINK  $@"; $(CC) $(LDFLAGS) -Wl,--wrap=LLVMFuzzerTestOneInput -o $@ $^ $(if $(filter broker_%,$*),$(BROKER_LIBS),$(if $(filter injector_%,$*),$(INJECTOR_LIBS),$(LIBS)))
$(OUT)/tests/fuzz/status_fuzz: $(call obj,tests/fuzz/status_fuzz.c tests/work/lua.c)
	@mkdir -p $(@D); echo "  LINK  $@"; $(CC) $(LDFLAGS) -o $@ $^ $(LUA_LIBS)
# The worker on a heap that knows who asked for each block; the other programs stand beside it.
$(OUT)/tests/bench/owners/agentd-worker: $(call obj,$(WORKER_MAIN) tests/bench/owners.c) $(WORKER_LIB) | $(OUT)/agentd $(OUT)/agentctl
	@mkdir -p $(@D); echo "  LINK  $@"; ln -f $(OUT)/agentd $(OUT)/agentctl $(@D); $(CC) $(LDFLAGS) -o $@ $^ $(WORKER_LIBS)
# Our bootstraps beside Istio's.
$(OUT)/tests/bootstrap/ours: $(OUT)/obj/tests/bootstrap/ours.o $(WORKER_LIB)
	@mkdir -p $(@D); echo "  LINK  $@"; $(CC) $(LDFLAGS) -o $@ $^ $(LIBS)
# The real kernel's test, here and in VMs, which get the libraries that it is linked to (tests/vm/run).
VM_SRC     := $(wildcard tests/vm/*.c)
$(OUT)/checks: $(call obj,$(VM_SRC)) $(OUT)/libbroker.a $(OUT)/libcommon.a
	@echo "  LINK  $@"; $(CC) $(LDFLAGS) -o $@ $^ $(BROKER_LIBS)
# One test by name: make build/asan/tests/unit/base/loop_test MODE=asan && build/asan/tests/unit/base/loop_test

test: ## everything CI runs: lint excluded, sanitizers included
	@tests/tools/deps build test
	@tests/tools/run-tests

unit: ## the unit tests alone, under ASan and UBSan
	@tests/tools/deps build test
	@$(MAKE) -s MODE=asan unit-run
	@$(MAKE) -s cage-run
asan: unit ## the same
tsan: ## the unit tests under ThreadSanitizer
	@tests/tools/deps build test
	@TSAN_OPTIONS="ignore_noninstrumented_modules=1 halt_on_error=1" $(MAKE) -s MODE=tsan unit-run
# A sanitizer makes the cage wider, and has a heap of its own; these are the real ones.
.PHONY: unit-run cage-run
cage-run: $(addprefix $(OUT)/tests/unit/,worker/link/cage_test worker/heap_test broker/base/calls_test)
	@tests/tools/run-unit $^
unit-run: $(UNIT_BIN)
	@tests/tools/run-unit $(UNIT_BIN)

e2e: ## the end-to-end tests alone (root): K='expression' chooses
	@tests/tools/deps build test
	@$(MAKE) -s binaries
	@$(MAKE) -s MODE=asan binaries
	@tests/tools/run-e2e $(if $(K),-k '$(K)')

test-vm: ## redirection on Debian's kernels 5.10, 6.1, 6.12 and 7 in qemu, Envoy on one (root): K='5.10 envoy' chooses
	@tests/tools/deps build test
	@$(MAKE) -s binaries vm-binaries
	@UNIT="$(VM_UNIT)" tests/vm/run $(K)
# Unit tests of what a kernel decides.
VM_UNIT    := $(addprefix $(OUT)/tests/unit/,$(addprefix broker/,netns/netns_test pods/peer_test kubelet/volume_test kubelet/volume_list_test \
	pods/kubelet_caller_test kubelet/csi_test redirect/namespace_test) worker/link/cage_test)
.PHONY: test-vm vm-binaries
vm-binaries: $(OUT)/checks $(VM_UNIT)

test-csi: ## csi-sanity against agentd as a CSI driver (root, go)
	@tests/tools/deps build test
	@$(MAKE) -s binaries
	@$(MAKE) -s MODE=asan binaries
	@tests/tools/test-csi
.PHONY: test-csi

MINUTES ?= 1
fuzz: ## each fuzz target in turn, MINUTES in all (default 1)
	@tests/tools/deps build test
	@$(MAKE) -s -j$(shell nproc) MODE=fuzz fuzz-build
	@tests/tools/run-fuzz $(MINUTES) $(FUZZ_BIN:$(OUT)/%=$(BUILD)/fuzz/%)
fuzz-build: $(FUZZ_BIN)

# What a stranger or a pod reaches; status.lua has the lines that ran, always.
COST       := $(addprefix tests/cost/,$(addsuffix _fuzz,ads_request broker_netlink broker_nft broker_kubelet csi_request dns_message dns_stream frames \
	http_client inject_mix injector_review manifest metrics_port override probe redirect regex sds_request targets token wasm))
fuzz-cost: ## the same for what a stranger or a pod reaches, in search of the input that costs most: more than COST_MS (50) of CPU fails
	@tests/tools/deps build test
	@$(MAKE) -s MODE=fuzz $(addprefix $(BUILD)/fuzz/,$(COST))
	@FUZZ_FLAGS='-max_len=16384 -len_control=0' tests/tools/run-fuzz $(MINUTES) $(addprefix $(BUILD)/fuzz/,$(COST))
.PHONY: fuzz-cost

bench: ## what things cost, as a table (no pass or fail)
	@tests/tools/deps build test
	@$(MAKE) -s binaries
	@tests/bench/run

bench-redirect: ## redirection by eBPF beside istio's iptables rules, as a table: ROUNDS=7
	@tests/tools/deps build test
	@$(MAKE) -s binaries
	@PYTHONDONTWRITEBYTECODE=1 $(or $(PYTHON),build/venv/bin/python3) -m tests.bench.redirect

bench-pod: ## what a kubelet's probe costs that is let in, and what a pod's Envoy pays for the status port, as tables: ROUNDS=7
	@tests/tools/deps build test
	@$(MAKE) -s binaries
	@PYTHONDONTWRITEBYTECODE=1 $(or $(PYTHON),build/venv/bin/python3) -m tests.bench.redirect kubelet
	@PYTHONDONTWRITEBYTECODE=1 $(or $(PYTHON),build/venv/bin/python3) -m tests.bench.pod

bench-peers: ## agentd beside pilot-agent and the SPIRE agent, as a table (root; Go builds them once): ROUNDS=5
	@tests/tools/deps build test
	@$(MAKE) -s binaries
	@for part in istio spire; do tests/real/parts/build $$part || true; done # the table says so
	@PYTHONDONTWRITEBYTECODE=1 $(or $(PYTHON),build/venv/bin/python3) -m tests.bench.peers

work: ## what CPU and memory the dearest input of each limit takes: the table of docs/LIMITS.md
	@tests/tools/deps build test
	@PYTHONDONTWRITEBYTECODE=1 $(or $(PYTHON),build/venv/bin/python3) -m tests.work.count
.PHONY: work

soak: ## the full counts of all tests, hours; tests/SOAK.md has the last result of each part: PARTS='unit tsan' chooses, MINUTES of fuzzing
	@tests/tools/deps build test
	@tests/tools/run-soak $(PARTS)

repeat: ## make test RUNS times (3), then BUSY times (0) beside busy loops, in clones at three places; tests/SOAK.md has the last result of each
	@tests/tools/repeat-tests $(or $(RUNS),3) $(BUSY)
.PHONY: repeat

lint: ## formatting, static analysis, layers, sizes, what the broker links
	@tests/tools/deps build test lint
	@$(MAKE) -s -j$(shell nproc) binaries
	@tests/tools/lint $(LINT)
lint-all: ## the same, all of it: writes tests/tools/PASSED, which says what lint and test need not look at again
	@$(MAKE) -s lint LINT=all

format: ## clang-format everything
	@clang-format -i $(shell git ls-files '*.c' '*.h')

run: ## agentd, a development control plane, three pods by agentctl inject, real Envoys; traffic, kills; what happened; clean up
	@tests/tools/demo needs
	@tests/tools/deps build run
	@set -o pipefail; TIMEFORMAT='  CPU %U %S'; { time $(MAKE) -s -j$(shell nproc) MODE=quick run-binaries; } 2>&1 | \
		tests/tools/progress $(words $(BROKER_SRC) $(CTL_SRC) $(COMMON_SRC) $(BASE_SRC) $(RPC_SRC) $(MESH_SRC) $(INJECT_SRC) $(WORKER_SRC) $(SKELETON) 1 2 3)
	@tests/tools/demo
.PHONY: run-binaries
run-binaries: $(OUT)/agentd $(OUT)/agentd-worker $(OUT)/agentctl

# Units name absolute paths.
paths = sed -E 's,/usr/local/(sbin|libexec)/,$(PREFIX)/\1/,' systemd/$(1) >"$(DESTDIR)$(PREFIX)/$(2)"
units = $(call paths,$(1),lib/systemd/system/$(1))

# What a page quotes of the sources: the keys of a pod's traffic, an example.
man_redirect = sed -nE '/^} keys\[\] = \{/,/^};/s/^    \{"([a-z_]+)",.*/\1/p' agentd/mesh/traffic.c | sed 's/.*/*&*/; s/_/\\_/g' | paste -sd, | sed 's/,/, /g; s/^/\t/'
EXAMPLE    := $(wildcard systemd/examples/*-*.yaml)
# Flags and keys are described where they are defined, in common/flags.c: agentd --help.  A flag: *--run* _DIR_; a key: *log_level*.
man_flags  = $(OUT)/agentd --help | sed -nE '/^Flags only/,/^$$/{s/_/\\_/g; s/^  --([a-z-]+)( ([^ ]+))? +(.*)/*--\1* _\3_\n\t\4.\n/; T; s/ __\n/\n/; p}'
man_inject = $(OUT)/agentd-injector --help | sed -nE 's/_/\\_/g; s/^  --([a-z-]+)( [A-Z:]+)? +(.*)/*--\1* _\2_\n\t\3.\n/; T; s/ __\n/\n/; s/_ /_/; p'
man_keys   = $(OUT)/agentd-worker --help | sed -nE 's/_/\\_/g; s/^  --([a-z-]+)(\[[^ ]*| [^ ]+)? +(.*)/*\1*\n\t\3.\n/; T; h; s/\n.*//; s/-/_/g; G; s/\n[^\n]*//; p'
MAN        := $(patsubst docs/man/%.scd,$(BUILD)/man/%,$(wildcard docs/man/*.scd))
man: $(MAN)
$(BUILD)/man/%: docs/man/%.scd $(OUT)/agentd $(OUT)/agentd-worker $(OUT)/agentd-injector
	@mkdir -p $(@D); { $(if $(findstring injector,$*),$(man_inject),$(man_flags)); } >$@.flags; { $(man_keys); } >$@.keys
	@$(man_redirect) >$@.redirect
	@sed -e '/^@FLAGS@$$/{r $@.flags' -e 'd}' -e '/^@KEYS@$$/{r $@.keys' -e 'd}' -e '/^\t@REDIRECT@$$/{r $@.redirect' -e 'd}' \
		-e '/^@EXAMPLE@$$/{r $(EXAMPLE)' -e 'd}' $< | scdoc >$@; rm $@.flags $@.keys $@.redirect
.PHONY: man

install: binaries man ## into $(DESTDIR)$(PREFIX), units and users of systemd included
	install -D -m 755 $(OUT)/agentd "$(DESTDIR)$(PREFIX)/sbin/agentd"
	install -D -m 755 $(OUT)/agentd-worker "$(DESTDIR)$(PREFIX)/sbin/agentd-worker"
	install -D -m 755 $(OUT)/agentd-injector "$(DESTDIR)$(PREFIX)/sbin/agentd-injector"
	install -D -m 755 $(OUT)/agentctl "$(DESTDIR)$(PREFIX)/bin/agentctl"
	install -d "$(DESTDIR)$(PREFIX)/libexec" "$(DESTDIR)$(PREFIX)/lib/systemd/system" "$(DESTDIR)$(PREFIX)/share/agentd"
	$(call paths,agentd-envoy,libexec/agentd-envoy)
	chmod 755 "$(DESTDIR)$(PREFIX)/libexec/agentd-envoy"
	$(call paths,app.conf,share/agentd/app.conf)
	install -D -m 755 systemd/agentd-state "$(DESTDIR)$(PREFIX)/libexec/agentd-state"
	install -D -m 644 systemd/sysusers.conf "$(DESTDIR)$(PREFIX)/lib/sysusers.d/agentd.conf"
	install -d "$(DESTDIR)$(PREFIX)/share/doc/agentd/examples" && install -m 644 systemd/examples/* "$(DESTDIR)$(PREFIX)/share/doc/agentd/examples"
	for page in $(MAN); do install -D -m 644 $$page "$(DESTDIR)$(PREFIX)/share/man/man$${page##*.}/$${page##*/}" || exit; done
	$(call units,agentd.service)
	$(call units,agentd-gate.service)
	$(call units,agentd-state.service)
	$(call units,agentd-envoy@.service)

INSTALLED  := sbin/agentd sbin/agentd-worker sbin/agentd-injector bin/agentctl libexec/agentd-envoy libexec/agentd-state share/agentd/app.conf \
	lib/sysusers.d/agentd.conf $(foreach unit,agentd agentd-gate agentd-state agentd-envoy@,lib/systemd/system/$(unit).service) \
	$(patsubst systemd/%,share/doc/agentd/%,$(wildcard systemd/examples/*)) $(foreach page,$(MAN),share/man/man$(subst .,,$(suffix $(page)))/$(notdir $(page)))
uninstall: ## remove from $(DESTDIR)$(PREFIX) what install put there; settings and users stay
	cd "$(DESTDIR)$(PREFIX)" && rm -f $(INSTALLED) && { rmdir share/agentd share/doc/agentd/examples share/doc/agentd 2>/dev/null || true; }

# The time that is in what is shipped: the last commit's.
export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || stat -c %Y VERSION)
IMAGE_ARCHES ?= amd64 arm64
# An image is the same whoever builds it: with this release's compiler and packages.
IMAGE_RELEASE := bookworm
tree       = $(BUILD)/release-$(1):$(BUILD)/sysroot-$(1)

image: ## an OCI archive for amd64 and arm64 without a container engine, and its SBOMs, in build/image/
	@helm/image/room $(IMAGE_RELEASE) $(BUILD) $(MAKE) -s image-here IMAGE_ARCHES='$(IMAGE_ARCHES)'
image-here:
	@tests/tools/deps build package
	@for arch in $(IMAGE_ARCHES); do $(MAKE) -s MODE=release FRESH=1 ARCH=$$arch binaries || exit; done
	@python3 -B helm/image/build.py --version $(VERSION) --text '$(VERSION_TEXT)' --epoch $(SOURCE_DATE_EPOCH) --out $(BUILD)/image \
		$(foreach a,$(IMAGE_ARCHES),$(a)=$(call tree,$(a)))
	@ls -sh1 $(BUILD)/image

site: ## the documents as a static site, in build/site/ (mkdocs of PyPI)
	@tests/tools/site
.PHONY: site

sign: ## SHA256SUMS of image, SBOMs, VEX and package, signed with an SSH key: KEY=~/.ssh/id_ed25519
	@helm/image/sign "$(KEY)"
.PHONY: sign

# What dpkg-buildpackage builds from: the sources, without tests, and debian/ where it looks for it.
deb: ## the Debian package of this machine's architecture, in build/deb/
	@tests/tools/deps build package
	@systemd/debian/build $(VERSION) $(BUILD)/deb

test-packages: needs-go image deb ## image and package as they will be used: unpacked, started, installed, removed (root, go)
	@tests/tools/deps build test package test-packages
	@[ -z "$$AGENTD_SOAK" ] || tests/tools/build-cosign
	@PATH=$$(tests/tools/needs-go test-packages 1.25 'builds the parser of a VEX') && \
		go build -C tests/packages/vex -o '$(abspath $(BUILD))/vex-parser' .
	@PYTHONDONTWRITEBYTECODE=1 build/venv/bin/python3 -m pytest -p no:cacheprovider -q --tb=short --timeout 900 --durations 5 tests/packages
needs-go: # before an image is built for it
	@tests/tools/needs-go test-packages 1.25 'builds the parser of a VEX' >/dev/null
.PHONY: image image-here deb test-packages needs-go

test-helm: ## the chart with the real helm, Kubernetes' schemas and istiod's injector (Go builds them once)
	@tests/tools/deps build test
	@$(MAKE) -s binaries
	@tests/tools/run-helm
.PHONY: test-helm

test-bootstrap: ## our bootstraps beside those of Istio's own package, and in the oldest and newest Envoy (go)
	@tests/tools/deps build test
	@$(MAKE) -s MODE=asan $(BUILD)/asan/tests/bootstrap/ours
	@tests/tools/run-bootstrap
.PHONY: test-bootstrap

test-pod: ## a pod's probes, status port and metrics beside the kubelet's, Istio's and Prometheus' own packages (root, go)
	@tests/tools/deps build test
	@$(MAKE) -s binaries
	@tests/tools/run-pod
.PHONY: test-pod

test-istiod: ## stock istiods, real Envoys, pilot-agent's pods beside ours; writes docs/SUPPORT.md (root, go): ISTIODS, ENVOYS choose
	@tests/tools/deps build test
	@$(MAKE) -s binaries
	@tests/tools/run-istiod
.PHONY: test-istiod

test-kube: ## a real kubelet, containerd, API server and istiod (root; Go builds them once): KUBE='-k reboot' chooses
	@tests/tools/deps build test kube
	@$(MAKE) -s binaries
	@$(MAKE) -s image IMAGE_ARCHES=$(HOST_ARCH)
	@tests/tools/run-kube $(KUBE)
.PHONY: test-kube

release-check: ## all that a release has passed, in hours; what it lacks is said first (root)
	@tests/tools/release-check
.PHONY: release-check

clean: ## remove everything that was built
	rm -rf $(BUILD)

-include $(shell find $(BUILD)/$(MODE) -name '*.d' 2>/dev/null)
