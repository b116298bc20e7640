# tests.mk: what is tested and measured, and how tests are linked.
#
# A line "LINK: tests/fake/loop.c ..." in a unit test's head comment says what it is linked with: fakes, and what tests share.
# Everything else comes from the libraries, so a test is one real module on faked neighbours.

.PHONY: test unit e2e bench bench-redirect bench-pod bench-peers asan tsan fuzz fuzz-build soak lint lint-all
UNIT_SRC   := $(sort $(shell find tests/unit -name '*_test.c'))
UNIT_BIN   := $(UNIT_SRC:%.c=$(OUT)/%)
FUZZ_SRC   := $(wildcard tests/fuzz/*_fuzz.c)
FUZZ_BIN   := $(FUZZ_SRC:%.c=$(OUT)/%)

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
	@tests/tools/lint $(CHECK)
lint-all: ## the same, all of it: writes tests/tools/PASSED, which says what lint and test need not look at again
	@$(MAKE) -s lint CHECK=all

site: ## the documents as a static site, in build/site/ (mkdocs of PyPI)
	@tests/tools/site
.PHONY: site

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
