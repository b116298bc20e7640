/* volume_rig.h - a rig.h with a directory of a kubelet: a tmpfs of the test's own.
 *
 *   <top>/kubelet/pods/<uid>/volumes/kubernetes.io~csi/<volume>/{vol_data.json,mount}
 */
#pragma once
#include "tests/unit/broker/rig.h"

extern const char rig_other_text[];

/* "<kubelet>/pods/<uid>/volumes/kubernetes.io~csi/<volume>/<name>" */
const char *volume_at(const struct rig *r, const char *uid, const char *volume, const char *name);
const char *target_at(const struct rig *r);

/* As the kubelet has it before it calls. */
void volume_make(const struct rig *r, const char *uid, const char *volume);

/* Lines of mountinfo that hold `text`. */
int mounts_with(const char *text);
int volume_setup(void **state);

/* Nothing of it may be left mounted outside of the kubelet's directory. */
int volume_teardown(void **state);
struct rig_ask publish(const struct uuid *pod);
struct rig_ask unpublish(const struct uuid *pod);
