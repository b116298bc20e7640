/* roots.c
 *
 * Bundle -> its blocks, by their first lines -> each is a certificate, or it is left out.
 * Union: cut both texts into blocks, sort them, leave out what is there already.
 */
#include "roots.h"
#include "common/err.h"
#include "common/mem.h"
#include "x509.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	TEXT_MAX = 256 * 1024,
	CERTS_MAX = 64,
	BLOCKS_MAX = 128,
	KIND_SIZE = 32,
	NAMED_MAX = 3, /* blocks that are left out */
};

static const char begin[] = "-----BEGIN ", end[] = "-----END ",
		  good_end[] = "-----END CERTIFICATE-----\n";

struct block {
	const char *text;
	size_t size;
	int64_t ends; /* when the certificate does */
};

struct blocks {
	struct block *at;
	size_t n;
};

/* --- one text of several --- */

static void add_block(struct blocks *b, const char *text, size_t size)
{
	auto_free char *one = mem_printf("%.*s", (int)size, text);
	struct x509_life life;

	x509_pem_life(one, &life);
	if (!(b->n & (b->n - 1))) /* doubled: this heap copies and wipes each time */
		b->at = mem_realloc(b->at, (b->n ? 2 * b->n : 1) * sizeof(*b->at));
	b->at[b->n++] = (struct block){text, size, life.last_end};
}

static void add_blocks(struct blocks *b, const char *text)
{
	while (*text) {
		const char *stop = strstr(text, good_end);
		size_t size = stop ? (size_t)(stop - text) + strlen(good_end) : strlen(text);

		add_block(b, text, size);
		text += size;
	}
}

static int in_order(const void *left, const void *right)
{
	const struct block *a = left, *b = right;
	int order;

	if (a->ends != b->ends)
		return a->ends > b->ends ? -1 : 1;
	order = memcmp(a->text, b->text, a->size < b->size ? a->size : b->size);
	return order ? order : (a->size > b->size) - (a->size < b->size);
}

char *roots_union(const char *a, const char *b)
{
	struct blocks all = {0};
	char *out, *to;

	add_blocks(&all, a);
	if (b)
		add_blocks(&all, b);
	if (all.n > 1)
		qsort(all.at, all.n, sizeof(*all.at), in_order);
	out = to = mem_zalloc(strlen(a) + (b ? strlen(b) : 0) + 1);
	for (size_t i = 0; i < all.n; i++)
		if (!i || in_order(&all.at[i - 1], &all.at[i]) != 0)
			to = mempcpy(to, all.at[i].text, all.at[i].size);
	free(all.at);
	return out;
}

/* --- a bundle --- */

/* Where the next line begins that starts so; NULL: none does. */
static const char *find_line(const char *at, const char *stop, const char *start)
{
	const size_t n = strlen(start);
	const char *found = at;

	while ((found = memmem(found, (size_t)(stop - found), start, n)))
		if (found == at || found[-1] == '\n')
			return found;
		else
			found++;
	return NULL;
}

/* A block ends with its last line, or where the next one begins: it lacks its end. */
static const char *end_of(const char *block, const char *stop)
{
	const char *inside = block + strlen(begin), *next = find_line(inside, stop, begin),
		   *last = find_line(inside, next ? next : stop, end), *line;

	if (!last)
		return next ? next : stop;
	line = memchr(last, '\n', (size_t)(stop - last));
	return line ? line + 1 : stop;
}

/* "TRUSTED CERTIFICATE" of its first line, printable. */
static void kind_of(const char *block, const char *stop, char out[KIND_SIZE])
{
	const char *word = block + strlen(begin);
	const char *dash = memmem(word, (size_t)(stop - word), "-----", 5);

	err_printable(out, KIND_SIZE, word, (unsigned)((dash ? dash : stop) - word));
}

/* What is read of it so far. */
struct bundle {
	struct blocks good;
	unsigned blocks, left_out;
	char *note;
};

__attribute__((format(printf, 2, 3))) static void add_note(struct bundle *b, const char *fmt, ...)
{
	size_t n = strlen(b->note);
	va_list ap;

	if (n)
		n += (size_t)snprintf(b->note + n, ROOTS_NOTE_SIZE - n, "; ");
	if (n >= ROOTS_NOTE_SIZE)
		return;
	va_start(ap, fmt);
	vsnprintf(b->note + n, ROOTS_NOTE_SIZE - n, fmt, ap);
	va_end(ap);
}

static void leave_out(struct bundle *b, const char *why)
{
	if (++b->left_out <= NAMED_MAX)
		add_note(b, "block %u is left out: %.40s", b->blocks, why);
}

static void read_block(struct bundle *b, const char *block, const char *stop)
{
	char kind[KIND_SIZE];
	struct err why;
	char *pem;

	b->blocks++;
	kind_of(block, stop, kind);
	if (strcmp(kind, "CERTIFICATE") != 0)
		return leave_out(b, kind);
	pem = x509_normalise_pem(block, (size_t)(stop - block), &why);
	if (!pem)
		return leave_out(b, why.msg);
	add_block(&b->good, pem, strlen(pem));
}

static char *text_of(const struct blocks *b)
{
	auto_free char *all = mem_strdup("");

	for (size_t i = 0; i < b->n; i++) {
		auto_free char *before = take(all);

		all = mem_printf("%s%s", before, b->at[i].text);
	}
	return roots_union(all, NULL);
}

static int check(const struct bundle *b, struct err *e)
{
	if (!b->good.n)
		return err_set(
		    e, ERR_INVALID, "no certificate in it%s%s", *b->note ? ": " : "", b->note);
	if (b->good.n > CERTS_MAX)
		return err_set(e, ERR_INVALID, "more than %d certificates", CERTS_MAX);
	if (b->blocks > BLOCKS_MAX)
		return err_set(e, ERR_INVALID, "more than %d PEM blocks", BLOCKS_MAX);
	return 0;
}

static char *read_all(struct bundle *b, const char *pem, const char *stop, struct err *e)
{
	struct x509_life life;
	char *all;

	for (const char *at = find_line(pem, stop, begin); at && b->blocks <= BLOCKS_MAX;) {
		const char *last = end_of(at, stop);

		read_block(b, at, last);
		at = find_line(last, stop, begin);
	}
	if (b->left_out > NAMED_MAX)
		add_note(b, "and %u more", b->left_out - NAMED_MAX);
	if (check(b, e))
		return NULL;
	all = text_of(&b->good);
	x509_pem_life(all, &life);
	if (life.alike)
		add_note(b,
		    "%u roots have one name, other keys and no key identifier: Envoy can take the "
		    "wrong one",
		    life.alike);
	return all;
}

char *roots_read(const char *pem, size_t len, char note[ROOTS_NOTE_SIZE], struct err *e)
{
	struct bundle b = {.note = note};
	char *all = NULL;

	*note = '\0';
	if (len > TEXT_MAX)
		err_set(e, ERR_INVALID, "%zu bytes are more than %d", len, TEXT_MAX);
	else
		all = read_all(&b, pem, pem + len, e);
	while (b.good.n)
		free((char *)b.good.at[--b.good.n].text);
	free(b.good.at);
	return all;
}
