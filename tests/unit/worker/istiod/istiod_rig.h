/* istiod_rig.h - one control plane with all that it stands on, faked. */
#pragma once
#include "worker/istiod/istiod.h"

struct istiod_rig {
	struct loop *loop;
	struct rpc *rpc;
	struct link *link;
	struct istiod_options plane;
	struct istiod *istiod;
};

extern struct istiod_rig rig;

/* All but `istiod`, which the test makes of `plane` as it changed that. */
void istiod_rig_begin(void);
/* Nothing may be left: no channel, no follow, no timer. */
void istiod_rig_end(void);
