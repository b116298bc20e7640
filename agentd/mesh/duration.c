/* duration.c - number, unit, number, unit, ... added up in nanoseconds; overflow is an error. */
#include "duration.h"
#include <string.h>

static const struct unit {
	const char *name;
	int64_t ns;
} units[] = {
    /* longer names first where one begins with another: "ms" before "m" */
    {"ns", 1},
    {"us", 1000},
    {"\xc2\xb5s", 1000},
    {"ms", 1000LL * 1000},
    {"s", 1000LL * 1000LL * 1000},
    {"m", 60LL * 1000 * 1000LL * 1000},
    {"h", 3600LL * 1000 * 1000LL * 1000},
};

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static const struct unit *read_unit(const char **at)
{
	for (unsigned i = 0; i < sizeof(units) / sizeof(*units); i++) {
		size_t n = strlen(units[i].name);

		if (!strncmp(*at, units[i].name, n)) {
			*at += n;
			return &units[i];
		}
	}
	return NULL;
}

static bool read_whole(const char **at, int64_t *whole)
{
	for (*whole = 0; is_digit(**at); (*at)++)
		if (__builtin_mul_overflow(*whole, 10, whole) ||
		    __builtin_add_overflow(*whole, **at - '0', whole))
			return false;
	return true;
}

/* One "1.5h": adds it to `ns`. */
static bool read_part(const char **at, int64_t *ns)
{
	const char *start = *at, *fraction = "";
	const struct unit *u;
	int64_t whole, digit_ns;

	if (!read_whole(at, &whole))
		return false;
	if (**at == '.') {
		fraction = ++*at;
		*at += strspn(*at, "0123456789");
	}
	if (!is_digit(*start) && !is_digit(*fraction))
		return false;
	u = read_unit(at);
	if (!u || __builtin_mul_overflow(whole, u->ns, &whole) ||
	    __builtin_add_overflow(*ns, whole, ns))
		return false;
	for (digit_ns = u->ns / 10; is_digit(*fraction); fraction++, digit_ns /= 10)
		if (__builtin_add_overflow(*ns, (*fraction - '0') * digit_ns, ns))
			return false;
	return true;
}

bool duration_parse(const char *text, int64_t *ms)
{
	int64_t ns = 0;

	if (!*text)
		return false;
	if (strcmp(text, "0") != 0)
		for (const char *at = text; *at;)
			if (!read_part(&at, &ns))
				return false;
	*ms = ns / (1000LL * 1000);
	return true;
}
