# build.mk: how a source is compiled in each mode, and what each program is linked with.

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
