/* yaml_scalar.c - null, a truth value, an integer, a real, in this order. */
#include "yaml_scalar.h"
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static bool is_word(const char *text, const char *const *words)
{
	for (; *words; words++)
		if (!strcmp(*words, text))
			return true;
	return false;
}

/* Decimal, 0x, 0b, 0o and 0 for octal, with underscores. */
static json_t *integer(const char *text)
{
	char digits[72];
	size_t n = 0;
	int base = 10;
	bool minus = *text == '-';
	char *end;
	long long v;

	text += *text == '-' || *text == '+';
	if (text[0] == '0' && text[1]) {
		base = text[1] == 'x' ? 16 : text[1] == 'b' ? 2 : 8;
		text += text[1] == 'x' || text[1] == 'b' || text[1] == 'o' ? 2 : 1;
	}
	if (minus)
		digits[n++] = '-';
	for (; *text && n < sizeof(digits) - 1; text++)
		if (*text != '_')
			digits[n++] = *text;
	digits[n] = '\0';
	if (*text || !strchr("0123456789abcdefABCDEF", digits[minus]) || !digits[minus])
		return NULL;
	errno = 0;
	v = strtoll(digits, &end, base);
	return *end || errno ? NULL : json_integer(v);
}

static json_t *real(const char *text)
{
	size_t n = strspn(text, "+-.0123456789eE_");
	char *end;
	double v;

	if (text[n] || !text[strcspn(text, "0123456789")])
		return NULL;
	v = strtod(text, &end);
	return *end || !isfinite(v) ? NULL : json_real(v);
}

json_t *yaml_scalar(const char *text)
{
	static const char *const nulls[] = {"", "~", "null", "Null", "NULL", NULL};
	static const char *const yes[] = {
	    "true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON", "y", "Y", NULL};
	static const char *const no[] = {
	    "false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF", "n", "N", NULL};
	json_t *number;

	if (is_word(text, nulls))
		return json_null();
	if (is_word(text, yes))
		return json_true();
	if (is_word(text, no))
		return json_false();
	number = integer(text);
	return number ? number : real(text);
}
