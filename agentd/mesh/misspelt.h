/* misspelt.h - annotations of a name space that has a closed list, ours or Istio's for traffic. */
#pragma once

/* The one that was probably meant; NULL: it is in its list, or in no such name space.  `known`: the
 * n-th key that is known beside traffic.h's, "annotation NAME" among others; NULL: no more. */
const char *misspelt_annotation(const char *name, const char *(*known)(unsigned n));
