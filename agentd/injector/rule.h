/* rule.h - shall a pod be injected: what the pod says, then the mesh's selectors and its policy, in
 * Istio's order (injection.md 2).  Pure.
 *
 * Read of the values, as istiod's chart has them: sidecarInjectorWebhook.neverInjectSelector,
 * .alwaysInjectSelector and .injectedAnnotations, global.proxy.autoInject.
 */
#pragma once
#include "inject/inject.h"

struct inject_config;

/* Istio passes over a selector it cannot read; here it is an error of the configuration. */
int rule_check(const struct inject_config *c, struct err *e);
struct inject_rule rule_of(const struct inject_config *c, const json_t *pod, const char *ns);
