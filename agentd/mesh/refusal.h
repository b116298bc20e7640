/* refusal.h - the form of every refusal: KEY: "value" refused; allowed: ...; and the words of one
 * that several programs say. */
#pragma once

struct err;

/* Of a volume without the word; the same in helm/agentd/templates/admission.yaml. */
#define REFUSAL_WRITABLE                                                                           \
	"the volume of agentd.node.mesh needs readOnly: true: without it the pod's containers "    \
	"could write in it"

/* Of a pod with such a volume; the same there. */
#define REFUSAL_SPIRE                                                                              \
	"the pod has a volume of csi.spiffe.io: SPIRE issues its certificate, and agentd would "   \
	"give it istiod's"

/* `key` and `value` are made printable and cut.  -1. */
int refusal(const char *key, const char *value, const char *allowed, struct err *e);
