/* review.c - an AdmissionReview, answered by the injector's engine. */
#include "injector/review.h"
#include "inject/config.h"
#include "work.h"
#include <stdio.h>
#include <stdlib.h>

static struct inject_config *config;

/* Where everything is rewritten, so that all of the engine is at work. */
void work_prepare(void)
{
	json_t *values = json_pack("{s:{s:s, s:s, s:[s]}}", "global", "hub", "r.io/i", "tag",
	    "1.29.1", "imagePullSecrets", "s");
	json_t *own = json_pack(
	    "{s:b, s:s}", "native", getenv("NATIVE") != NULL, "redirectMode", "istio-init");

	json_object_seed(1);
	config = inject_config_new(values, NULL, own, NULL);
	json_decref(values);
	json_decref(own);
}

void work_case(const char *bytes, size_t len)
{
	struct review r;

	review_answer(&r, config, bytes, len);
	fprintf(stderr, "%s: %s\n", review_words[r.result], r.why);
	free(r.text);
}
