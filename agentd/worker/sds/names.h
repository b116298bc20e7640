/* names.h - what the resource names of a pod's SDS stream mean (istio-agent.md 2.3).
 *
 * `ROOTCA` is the root, `file-cert:A~B` and `file-root:A` are files that Envoy reads itself,
 * `file-root:system` is the operating system's roots.  Any other plain name is the certificate.
 * The control plane serves names with "://".
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct err;

enum sds_kind { SDS_CERT, SDS_ROOT, SDS_FILE_CERT, SDS_FILE_ROOT };

struct sds_name {
	char *text;
	enum sds_kind kind;
	char *path, *key_path;              /* of files; key_path points into path's memory */
	uint64_t seen;                      /* of files: what files.h saw of them; 0: nothing */
	char version[sizeof("file-") + 16]; /* of files: it says so */
};

/* `n` is zeroed; `text` is copied. -1: it is not served here.  Clear `n` in either case. */
int sds_names_read(struct sds_name *n, const char *text, struct err *e);
void sds_names_clear(struct sds_name *n);
bool sds_names_is_file(const struct sds_name *n);
void sds_names_see(struct sds_name *n, uint64_t seen);
