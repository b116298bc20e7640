/* proxy_fields.h - the fields of istio.mesh.v1alpha1.ProxyConfig with their types, at every level.
 *
 * A document is read as Istio's injector, its agent and istiod read it: names in either spelling,
 * null is no field, a number may be a text ("5"), a truth value may not, a text may not be a number
 * or a truth value.  Fields that are not known here stay as they are.
 */
#pragma once
#include <jansson.h>

struct err;

/* A new object in proto JSON, its names in camelCase; the caller's.  `document` is what
 * yaml_typed() makes of a text; NULL or null: there is none.  NULL: refused, by the path of the
 * field after `where`: "WHERE.tracing.sampling". */
json_t *proxy_fields_read(const char *where, const json_t *document, struct err *e);
