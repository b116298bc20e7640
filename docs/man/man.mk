# man.mk: the man pages, build/man/.

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
