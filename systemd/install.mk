# install.mk: what is installed, and where; uninstall removes the same.

.PHONY: install uninstall
# Units name absolute paths.
paths = sed -E 's,/usr/local/(sbin|libexec)/,$(PREFIX)/\1/,' systemd/$(1) >"$(DESTDIR)$(PREFIX)/$(2)"
units = $(call paths,$(1),lib/systemd/system/$(1))

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
