/* kubepods.h - the kubelet's part of the cgroup tree, and the names of pods in it.
 *
 * The kubelet's driver and its --cgroup-root make the names (kubelet-csi.md 3c); the quality of
 * service, which we are not told, makes the folder.  So a pod has three places where its cgroup can
 * be, and it is in one of them.  The kubelet has its tree before it asks for any pod.
 */
#pragma once
#include "broker/base/options.h"
#include <limits.h>

/* Paths below the cgroup root, each with its NUL; an empty one ends them. */
enum { KUBEPODS_SIZE = 4096 };

/* Where pods of this node can be: in --kubepods, or in those of the usual trees that are there now.
 * None: an empty list.  `root`: that of cgroup v2. */
void kubepods_find(
    const struct broker_options *o, int root, const char *uid, char out[KUBEPODS_SIZE]);
/* Where trees can be, there or not: --kubepods, or the usual ones, each below `root`. */
void kubepods_trees(const struct broker_options *o, const char *root, char out[KUBEPODS_SIZE]);
/* The tree, as a path below the root, if it is there, and if there is but one.  False: no. */
bool kubepods_tree(const struct broker_options *o, int root, char out[PATH_MAX]);
/* For people: a tree with a kubelet's name, wherever it is, as printable ASCII.  Nobody else goes
 * by it, since others than root may be allowed to make cgroups somewhere, and to name them so. */
bool kubepods_look(int root, char out[PATH_MAX]);
