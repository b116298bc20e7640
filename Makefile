# agentd: build, test and run.  `make help` lists what there is.
#
# Here is what the programs are made of. agentd/build.mk has compiler and libraries, ebpf/ebpf.mk what the kernel runs,
# tests/tests.mk what tests them, docs/man/man.mk the man pages, systemd/install.mk
# install, helm/image/image.mk what is shipped. A package is built from the sources without tests/ and helm/.

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

include agentd/build.mk

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

.PHONY: all help deps format run clean
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

include ebpf/ebpf.mk

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
$(OUT)/obj/%.o: %.c Makefile agentd/build.mk | $(PB_SRC) $(SKELETON) $(SCRIPTS) $(SYSROOT)
	@mkdir -p $(@D); echo "  CC    $(MODE) $<"; $(CC) $(CFLAGS) -MMD -MP -c -o $@ $<
$(OUT)/obj/gen/%.o: $(GEN)/%.c Makefile agentd/build.mk | $(PB_SRC) $(SYSROOT)
	@mkdir -p $(@D); $(CC) $(CFLAGS) -w -MMD -MP -c -o $@ $<
$(GEN)/%.pb-c.c: proto/%.proto
	@mkdir -p $(GEN); protoc-c -I proto --c_out=$(GEN) $<

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

# The time that is in what is shipped: the last commit's.
export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || stat -c %Y VERSION)

clean: ## remove everything that was built
	rm -rf $(BUILD)

include docs/man/man.mk systemd/install.mk
-include helm/image/image.mk tests/tests.mk
-include $(shell find $(BUILD)/$(MODE) -name '*.d' 2>/dev/null)
