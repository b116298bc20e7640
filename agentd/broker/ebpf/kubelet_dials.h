/* probes.h - the kubelet, let in to pods' probe ports: attached, and told who it is not.
 *
 * With the first pod that has such ports the programs of ebpf/probes.bpf.h are attached above every
 * process of the node, and stay like the others; a node without pays nothing.  What they are to
 * know is one struct: the kubelet's trees of pods, which are looked for each time, and the ports of
 * all pods.
 */
#pragma once
#include "common/err.h"

struct redirect;

/* As an earlier broker left it: attached or not, and what it told. */
int kubelet_dials_begin(struct redirect *r, struct err *e);
void kubelet_dials_end(struct redirect *r);
/* Tells the programs of trees and ports as they are now, and attaches them with the first port. */
int kubelet_dials_tell(struct redirect *r, struct err *e);
/* The same; 1: somebody had changed what they were told. */
int kubelet_dials_mend(struct redirect *r, struct err *e);
