/* names.c - see names.h.  Files are named here, and never opened. */
#include "names.h"
#include "common/err.h"
#include "common/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAME_SHOWN = 80 };

#define FILE_CERT "file-cert:"
#define FILE_ROOT "file-root:"
#define FILE_ROOT_SYSTEM FILE_ROOT "system"

/* Never opened here, but Envoy shall not be led out of where the name says. */
static bool path_ok(const char *p)
{
	if (p[0] != '/' || strchr(p, '~'))
		return false;
	for (const char *s = p; (s = strstr(s, "/..")); s += 3)
		if (s[3] == '/' || s[3] == '\0')
			return false;
	return true;
}

/* Where the roots of the operating system are, first existing wins (istio-agent.md 2.3).  Looked
 * for in agentd's own file system, which on bare metal is Envoy's too; an image is as ours. */
static const char *system_roots(void)
{
	static const char *const known[] = {"/etc/ssl/certs/ca-certificates.crt",
	    "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/pki/tls/cacert.pem",
	    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/ssl/cert.pem",
	    "/usr/local/etc/ssl/cert.pem", "/etc/ssl/certs/ca-certificates"};

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (access(known[i], R_OK) == 0)
			return known[i];
	return known[0];
}

static int bad_name(struct err *e, const char *name, const char *what)
{
	char shown[NAME_SHOWN];

	err_printable(shown, sizeof(shown), name, (unsigned)strlen(name));
	return err_set(e, ERR_INVALID, "secret name \"%s\": %s", shown, what);
}

static int read_file_cert(struct sds_name *n, struct err *e)
{
	n->kind = SDS_FILE_CERT;
	n->path = mem_strdup(n->text + strlen(FILE_CERT));
	n->key_path = strchr(n->path, '~');
	if (!n->key_path)
		return bad_name(e, n->text, "needs two paths with one ~ between");
	*n->key_path++ = '\0';
	if (!path_ok(n->path) || !path_ok(n->key_path))
		return bad_name(e, n->text, "needs two absolute paths without .. or ~ inside");
	return 0;
}

static int read_file_root(struct sds_name *n, struct err *e)
{
	n->kind = SDS_FILE_ROOT;
	if (strcmp(n->text, FILE_ROOT_SYSTEM) == 0) {
		n->path = mem_strdup(system_roots());
		return 0;
	}
	n->path = mem_strdup(n->text + strlen(FILE_ROOT));
	if (!path_ok(n->path))
		return bad_name(e, n->text, "needs an absolute path without .. or ~ inside");
	return 0;
}

int sds_names_read(struct sds_name *n, const char *text, struct err *e)
{
	n->text = mem_strdup(text);
	sds_names_see(n, 0);
	if (strncmp(text, FILE_CERT, strlen(FILE_CERT)) == 0)
		return read_file_cert(n, e);
	if (strncmp(text, FILE_ROOT, strlen(FILE_ROOT)) == 0)
		return read_file_root(n, e);
	if (text[0] == '\0')
		return bad_name(e, text, "is empty");
	if (strstr(text, "://"))
		return bad_name(e, text, "is served by the control plane, not by this socket");
	n->kind = strcmp(text, "ROOTCA") == 0 ? SDS_ROOT : SDS_CERT;
	return 0;
}

void sds_names_clear(struct sds_name *n)
{
	free(n->text);
	free(n->path);
	*n = (struct sds_name){0};
}

void sds_names_see(struct sds_name *n, uint64_t seen)
{
	n->seen = seen;
	if (seen)
		(void)snprintf(n->version, sizeof(n->version), "file-%016" PRIx64, seen);
	else
		(void)snprintf(n->version, sizeof(n->version), "file");
}

bool sds_names_is_file(const struct sds_name *n)
{
	return n->kind == SDS_FILE_CERT || n->kind == SDS_FILE_ROOT;
}
