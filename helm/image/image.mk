# image.mk: what is shipped: images, the Debian package, signatures; packages of another architecture.

# What this machine has as packages; removed, it is made anew with what Debian then has.
.PHONY: same-packages
$(BUILD)/sysroot-%: same-packages
	@helm/image/sysroot $* $@ $$(LIST=1 tests/tools/deps build | grep -E '^(lib|uthash|zlib).*-dev$$') libstdc++-$(GCC_MAJOR)-dev ca-certificates

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
