/* roots.c - cut both texts into blocks, sort them, leave out what is there already. */
#include "roots.h"
#include "common/mem.h"
#include <string.h>

struct block {
	const char *text;
	size_t size;
};

struct blocks {
	struct block *at;
	size_t n;
};

static void add_blocks(struct blocks *b, const char *text)
{
	static const char end[] = "-----END CERTIFICATE-----\n";

	while (*text) {
		const char *stop = strstr(text, end);
		size_t size = stop ? (size_t)(stop - text) + strlen(end) : strlen(text);

		b->at = mem_realloc(b->at, (b->n + 1) * sizeof(*b->at));
		b->at[b->n++] = (struct block){text, size};
		text += size;
	}
}

static int by_text(const void *left, const void *right)
{
	const struct block *a = left, *b = right;
	int order = memcmp(a->text, b->text, a->size < b->size ? a->size : b->size);

	return order ? order : (a->size > b->size) - (a->size < b->size);
}

char *roots_union(const char *a, const char *b)
{
	struct blocks all = {0};
	char *out, *end;

	add_blocks(&all, a);
	if (b)
		add_blocks(&all, b);
	if (all.n > 1)
		qsort(all.at, all.n, sizeof(*all.at), by_text);
	out = end = mem_zalloc(strlen(a) + (b ? strlen(b) : 0) + 1);
	for (size_t i = 0; i < all.n; i++)
		if (!i || by_text(&all.at[i - 1], &all.at[i]) != 0)
			end = mempcpy(end, all.at[i].text, all.at[i].size);
	free(all.at);
	return out;
}
