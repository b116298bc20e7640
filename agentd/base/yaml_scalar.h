/* yaml_scalar.h - what a plain scalar means in YAML 1.1, as Go's YAML and Kubernetes read it. */
#pragma once
#include <jansson.h>

/* yes is true, ~ is null, 0777 is 511, 0.1 is a number.  NULL: it is a text. */
json_t *yaml_scalar(const char *text);
