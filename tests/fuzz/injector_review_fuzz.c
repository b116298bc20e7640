/* injector_review_fuzz.c - any body as a review: no answer but one that an API server takes
 * (injection.md 1), and a patch makes a pod of ours of the one that was asked about. */
#include "inject/bounds.h"
#include "inject_rig.h"
#include "injector/review.h"
#include "patch_rig.h"
#include <openssl/evp.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static json_t *decode(const char *base64)
{
	size_t n = strlen(base64);
	char *text = malloc(n + 1);
	int len = EVP_DecodeBlock((unsigned char *)text, (const unsigned char *)base64, (int)n);
	json_t *v;

	must(len > 0);
	while (n && base64[n - 1] == '=') /* counted as zeros */
		n--, len--;
	v = json_loadb(text, (size_t)len, JSON_ALLOW_NUL, NULL);
	must(v);
	free(text);
	return v;
}

static void check_patch(const json_t *pod, const char *base64)
{
	json_t *patch = decode(base64), *done = patch_apply(pod, patch), *back;
	struct err e;

	must(done && inject_is_injected(done));
	back = inject_take_back(done, &e);
	must(back);
	json_decref(back);
	json_decref(done);
	json_decref(patch);
}

static void check_warnings(const json_t *warnings)
{
	const json_t *v;
	size_t i;

	must(json_array_size(warnings) <= 16);
	json_array_foreach (warnings, i, v)
		must(json_string_length(v) <= 120);
}

static void check_answer(const struct review *r, const json_t *request)
{
	json_t *answer = json_loads(r->text, JSON_ALLOW_NUL, NULL);
	json_t *response = json_object_get(answer, "response");
	const json_t *patch = json_object_get(response, "patch");

	must(json_equal(json_object_get(response, "uid"), json_object_get(request, "uid")));
	must(!patch == !json_object_get(response, "patchType"));
	must(json_is_true(json_object_get(response, "allowed")) == (r->result != REVIEW_REFUSED));
	must(json_is_string(json_object_get(json_object_get(response, "status"), "message")) ==
	     (r->result == REVIEW_REFUSED));
	must(!patch || r->result == REVIEW_INJECTED);
	check_warnings(json_object_get(response, "warnings"));
	if (patch)
		check_patch(json_object_get(request, "object"), json_string_value(patch));
	json_decref(answer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	json_t *review = json_loadb((const char *)data, size, JSON_ALLOW_NUL, NULL);

	for (int native = 0; native < 2; native++) {
		struct review r;

		review_answer(&r, rig_config(native), (const char *)data, size);
		must((r.status == 200) == (r.result != REVIEW_MALFORMED));
		must(r.status != 200 || review);
		if (r.status == 200)
			check_answer(&r, json_object_get(review, "request"));
		free(r.text);
	}
	json_decref(review);
	return 0;
}
