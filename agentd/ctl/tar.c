/* tar.c - a header of 512 bytes, the content filled up to such blocks, two empty ones at the end.
 */
#include "tar.h"
#include <string.h>
#include <time.h>

enum { BLOCK = 512 };

struct header {
	char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, link[100],
	    magic[6], version[2], rest[247];
};
_Static_assert(sizeof(struct header) == BLOCK, "a tar header");

static unsigned sum_of(const struct header *h)
{
	const unsigned char *byte = (const unsigned char *)h;
	unsigned sum = 0;

	for (unsigned i = 0; i < BLOCK; i++)
		sum += byte[i];
	return sum;
}

void ctl_tar_add(FILE *out, const char *name, const char *text, size_t size)
{
	static const char nothing[BLOCK];
	struct header h = {.mode = "0000600",
	    .uid = "0000000",
	    .gid = "0000000",
	    .checksum = "        ", /* as it is summed up */
	    .type = '0',
	    .magic = "ustar",
	    .version = {'0', '0'}};

	snprintf(h.name, sizeof(h.name), "%s", name);
	snprintf(h.size, sizeof(h.size), "%011zo", size);
	snprintf(h.mtime, sizeof(h.mtime), "%011llo", (unsigned long long)time(NULL));
	snprintf(h.checksum, sizeof(h.checksum), "%06o", sum_of(&h));
	h.checksum[7] = ' ';
	(void)fwrite(&h, sizeof(h), 1, out);
	(void)fwrite(text, 1, size, out);
	(void)fwrite(nothing, 1, (BLOCK - size % BLOCK) % BLOCK, out);
}

void ctl_tar_end(FILE *out)
{
	static const char nothing[2 * BLOCK];

	(void)fwrite(nothing, sizeof(nothing), 1, out);
}
