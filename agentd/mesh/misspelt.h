/* misspelt.h - annotations of a name space that has a closed list, ours or Istio's for traffic, and
 * that are not in it: ignored, and listed with the nearest one that is.  Private to mesh/node*.c.
 */
#pragma once

struct node_reader;

/* Also of any other annotation: nothing happens.  Finding the nearest one costs, so the first 16 of
 * a pod are listed. */
void misspelt_check(struct node_reader *r, const char *annotation);
