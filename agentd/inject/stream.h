/* stream.h - a file of manifests: YAML documents between lines of "---", or JSON.
 *
 * A document without pods, or with pods that are to stay as they are, comes out byte for byte.  In
 * one that is changed the rest stays as it is written, but for its comments (yaml_tree.h); lines of
 * comments before it stay.  A document that begins with "{" is JSON if it can be read so, and is
 * written as JSON.
 */
#pragma once
#include "workload.h"
#include <stddef.h>

/* The whole file, done; NULL: refused, and the error names the document.  NUL-terminated; the
 * caller frees it. */
char *inject_stream(
    const struct inject_work *w, const char *text, size_t len, size_t *out_len, struct err *e);

/* One document of either kind, for configuration; NULL: refused. */
json_t *inject_read(const char *text, size_t len, struct err *e);
