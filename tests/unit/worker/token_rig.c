/* token_rig.c - see token_rig.h. */
#include "token_rig.h"
#include "common/mem.h"
#include <string.h>

static char *base64url(const char *text)
{
	static const char digits[] =
	    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
	size_t n = strlen(text), at = 0;
	char *out = mem_zalloc(n * 4 / 3 + 8);

	for (size_t i = 0; i < n; i += 3) {
		uint32_t v = (uint32_t)(unsigned char)text[i] << 16;

		v |= i + 1 < n ? (uint32_t)(unsigned char)text[i + 1] << 8 : 0;
		v |= i + 2 < n ? (uint32_t)(unsigned char)text[i + 2] : 0;
		for (unsigned k = 0; k < 4 && i + k <= n; k++)
			out[at++] = digits[v >> (18 - 6 * k) & 63];
	}
	return out;
}

char *rig_token(const char *uid, const char *ns, const char *sa, int64_t expires)
{
	auto_free char *pod =
	    uid ? mem_printf(",\"pod\":{\"name\":\"p\",\"uid\":\"%s\"}", uid) : NULL;
	auto_free char *claims =
	    mem_printf("{\"aud\":[\"istio-ca\"],\"iat\":1000,\"exp\":%lld,\"sub\":\"system:"
		       "serviceaccount:%s:%s\","
		       "\"kubernetes.io\":{\"namespace\":\"%s\",\"serviceaccount\":{\"name\":\"%"
		       "s\",\"uid\":\"first\"}%s}}",
		(long long)expires, ns, sa, ns, sa, pod ? pod : "");
	auto_free char *header = base64url("{\"alg\":\"RS256\"}");
	auto_free char *payload = base64url(claims);

	return mem_printf("%s.%s.SECRET", header, payload);
}
