/* accelerate.bpf.c - what an app writes to its own Envoy goes from socket to socket, and what two
 * Envoys of the node write to each other.
 *
 * A connection between the two is established -> the app's end, the giver, is put into `givers`,
 * Envoy's end, the taker, into `takers`, both under the same key -> the app sends:
 * redirect_give looks at the taker -> the bytes go to the taker's queue, or by TCP.
 *
 * A taker reads its queue before what came by TCP.  So bytes go to the queue only while nothing
 * that came by TCP is unread; and only while the queue is short, for the kernel does not bound it.
 * A giver never waits here: what does not go to the queue goes by TCP, which makes it wait.
 *
 * The way to an app stays with TCP: splice(2), SO_RCVLOWAT and urgent data do not see the queue,
 * and an app may use them.  Envoy does not (ebpf-redirect.md 12), so each of two gives and takes.
 *
 * Two Envoys are known by marks of redirect.bpf.c, and by `homes`: each end's own address is its
 * pod's and nobody else's, and the other end's is that of another such pod.
 *
 * redirect_meet and redirect_setsockopt hang at the cgroup of each pod that asked for it,
 * redirect_give at the map of givers.  A socket keeps the program it began with.
 */
#include "words.bpf.h"
/* After the kernel's types. */
#include "accelerate.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Set before loading. */
const volatile struct accelerate_fields fields;

enum { GIVE_AT_LEAST = 4096, PAGE = 4096, SHORT = 4096, SHORT_FIRST = 5, SHORT_EACH = 16 };

/* Of libc's headers, which want a C library. */
enum {
	SOL_SOCKET_ = 1,
	SOL_TCP_ = 6,
	TCP_NODELAY_ = 1,
	TCP_ULP_ = 31,
	SO_ZEROCOPY_ = 60,
	ENOENT_ = 2,
	EOPNOTSUPP_ = 95,
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, struct redirect_socket);
} sockets SEC(".maps"); /* redirect.bpf.c's own */

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct accelerate_lane);
} lanes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SOCKHASH);
	__uint(max_entries, ACCELERATE_LANES_MAX);
	__type(key, struct accelerate_lane_key);
	__type(value, __u64);
} givers SEC(".maps"), takers SEC(".maps");

/* Where the taker's struct is: from its establishment until the giver sends, or it is closed.  What
 * stays behind where the pod's links went meanwhile makes room for others. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, ACCELERATE_LANES_MAX);
	__type(key, struct accelerate_lane_key);
	__type(value, __u64);
} taker_places SEC(".maps");

/* Whoever looks maps it: no call, and no copy. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, ACCELERATE_ROWS);
	__type(key, __u32);
	__type(value, struct accelerate_row);
} lane_rows SEC(".maps");

/* The address of a pod that asked for it -> its index; the broker's (redirect/homes.h). */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, ACCELERATE_HOMES_MAX);
	__type(key, struct redirect_address);
	__type(value, __u32);
} homes SEC(".maps");

static __always_inline struct accelerate_counts *counts_of(const struct accelerate_lane *lane)
{
	__u32 at = bpf_get_smp_processor_id() % ACCELERATE_ROWS;
	struct accelerate_row *row = bpf_map_lookup_elem(&lane_rows, &at);

	if (!row)
		return NULL;
	return lane->role == ACCELERATE_EITHER ? &row->between : &row->loopback;
}

/* A program may be interrupted by another one of the same processor. */
static __always_inline void add(__u64 *count, __u64 n)
{
	__sync_fetch_and_add(count, n);
}

static __always_inline __u32 field_of(__u64 socket, __u32 at)
{
	__u32 value = 0;

	bpf_probe_read_kernel(&value, sizeof(value), (void *)(socket + at));
	return value;
}

/* --- two ends meet --- */

/* 127.0.0.6 or ::6: where Envoy dials the app from. */
static __always_inline bool is_envoys(const struct redirect_address *a)
{
	if (a->word[0] | a->word[1])
		return false;
	return a->word[2] ? a->word[2] == bpf_htonl(0xffff) && a->word[3] == bpf_htonl(0x7f000006)
			  : a->word[3] == bpf_htonl(6);
}

static __always_inline __u32 pod_at(const struct redirect_address *a)
{
	const __u32 *index = bpf_map_lookup_elem(&homes, a);

	return index ? *index : 0;
}

/* An Envoy's end of a connection to an Envoy of another pod: the index of the one that accepted. */
static __always_inline __u32 accepted_by(
    const struct redirect_socket *s, const struct ends *e, bool dialled)
{
	__u32 other;

	if (s->kind != (dialled ? REDIRECT_SOCKET_ENVOYS : REDIRECT_SOCKET_LISTENS_IN) ||
	    !s->index || pod_at(&e->local) != s->index)
		return 0;
	other = pod_at(&e->remote);
	if (!other || other == s->index)
		return 0;
	return dialled ? other : s->index;
}

/* Dialled by the app, and accepted by Envoy (outbound); or by Envoy, from 127.0.0.6 or ::6, and
 * accepted by the app (inbound); or by an Envoy, and accepted by another. */
static __always_inline enum accelerate_role role_of(
    const struct redirect_socket *s, const struct ends *e, bool dialled)
{
	if (is_envoys(dialled ? &e->local : &e->remote))
		return dialled ? ACCELERATE_TAKER : ACCELERATE_GIVER;
	if (!s)
		return 0;
	if (dialled && s->kind == REDIRECT_SOCKET_DIALLED)
		return ACCELERATE_GIVER;
	if (!dialled &&
	    (s->kind == REDIRECT_SOCKET_LISTENS_OUT || s->kind == REDIRECT_SOCKET_ACCEPTED))
		return ACCELERATE_TAKER;
	return accepted_by(s, e, dialled) ? ACCELERATE_EITHER : 0;
}

static __always_inline struct accelerate_lane_key key_of(
    struct bpf_sock_ops *ctx, const struct ends *e, bool dialled)
{
	struct accelerate_lane_key k = {.netns = bpf_get_netns_cookie(ctx)};

	k.client = dialled ? e->local : e->remote;
	k.client_port = dialled ? e->local_port : e->remote_port;
	k.server = dialled ? e->remote.word[3] : e->local.word[3];
	k.server_port = dialled ? e->remote_port : e->local_port;
	return k;
}

/* Both of two Envoys see each other's network namespace as little as we do, but the same pods. */
static __always_inline __u64 between_of(
    const struct redirect_socket *s, const struct ends *e, bool dialled)
{
	return ACCELERATE_BETWEEN | (dialled ? ACCELERATE_DIALLED : 0) | accepted_by(s, e, dialled);
}

/* The key of the socket that takes what this one gives. */
static __always_inline struct accelerate_lane_key other_end(const struct accelerate_lane *lane)
{
	struct accelerate_lane_key key = lane->key;

	if (lane->role == ACCELERATE_EITHER)
		key.netns ^= ACCELERATE_DIALLED;
	return key;
}

/* The verifier lets nobody calculate with a socket, but with what a map says. */
static __always_inline __u64 place_of(const struct accelerate_lane *lane)
{
	return *(const volatile __u64 *)&lane->place;
}

static __always_inline bool is_mptcp(const struct accelerate_lane *lane)
{
	return fields.is_mptcp && field_of(place_of(lane), fields.is_mptcp) & 0xff;
}

static __always_inline void take_place(struct bpf_sock_ops *ctx, const struct accelerate_lane *lane)
{
	struct accelerate_lane_key key = lane->key;
	struct accelerate_counts *c = counts_of(lane);
	__u64 place = place_of(lane);

	if (bpf_sock_hash_update(ctx, &takers, &key, BPF_ANY))
		return; /* no room: the giver will find nobody */
	bpf_map_update_elem(&taker_places, &key, &place, BPF_ANY);
	bpf_sock_ops_cb_flags_set(ctx, ctx->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_STATE_CB_FLAG);
	if (c && lane->role == ACCELERATE_TAKER)
		add(&c->lanes, 1);
}

/* What goes by TCP after all leaves in pieces, of which the last would wait for the taker's word on
 * the one before: 40 ms. */
static __always_inline void become_giver(struct bpf_sock_ops *ctx, struct accelerate_lane *lane)
{
	int on = 1;

	if (bpf_sock_hash_update(ctx, &givers, &lane->key, BPF_ANY))
		/* no room: it gives as without */
		lane->role = lane->role == ACCELERATE_EITHER ? ACCELERATE_TAKER : 0;
	else
		bpf_setsockopt(ctx, SOL_TCP_, TCP_NODELAY_, &on, sizeof(on));
}

static __always_inline void on_established(
    struct bpf_sock_ops *ctx, struct bpf_sock *sk, bool dialled)
{
	const struct ends e = ends_of(ctx);
	const struct redirect_socket *s = bpf_sk_storage_get(&sockets, sk, NULL, 0);
	enum accelerate_role role = role_of(s, &e, dialled);
	struct accelerate_lane *lane =
	    bpf_sk_storage_get(&lanes, sk, NULL, role ? BPF_SK_STORAGE_GET_F_CREATE : 0);

	if (!lane || lane->role == ACCELERATE_NEVER)
		return;
	lane->role = 0; /* of a socket's earlier connection nothing is left */
	lane->taker = 0;
	lane->sends = 0;
	if (!role)
		return;
	lane->place = (__u64)sk;
	if (is_mptcp(lane))
		return;
	lane->role = role;
	lane->key = key_of(ctx, &e, dialled);
	if (role == ACCELERATE_EITHER && s)
		lane->key.netns = between_of(s, &e, dialled);
	if (role != ACCELERATE_GIVER)
		take_place(ctx, lane);
	if (role != ACCELERATE_TAKER)
		become_giver(ctx, lane);
}

static __always_inline void on_state(struct bpf_sock_ops *ctx, struct bpf_sock *sk)
{
	const struct accelerate_lane *lane;

	if (ctx->args[1] != BPF_TCP_CLOSE)
		return;
	lane = bpf_sk_storage_get(&lanes, sk, NULL, 0);
	if (lane && (lane->role == ACCELERATE_TAKER || lane->role == ACCELERATE_EITHER))
		bpf_map_delete_elem(&taker_places, &lane->key);
}

SEC("sockops")
int redirect_meet(struct bpf_sock_ops *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	__u32 op = ctx->op;

	if (op != BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB && op != BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB &&
	    op != BPF_SOCK_OPS_STATE_CB)
		return 1;
	if (!sk)
		return 1;
	if (op == BPF_SOCK_OPS_STATE_CB)
		on_state(ctx, sk);
	else
		on_established(ctx, sk, op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB);
	return 1;
}

/* --- the app sends --- */

/* Another state: it has shut its end, or was reset, and the kernel does not look. */
static __always_inline bool may_send(struct bpf_sock *sk)
{
	return sk->state == BPF_TCP_ESTABLISHED || sk->state == BPF_TCP_CLOSE_WAIT;
}

static __always_inline bool is_giver(const struct accelerate_lane *lane)
{
	return lane->role == ACCELERATE_GIVER || lane->role == ACCELERATE_EITHER;
}

/* Once: what stands there is looked at only to decide, and goes nowhere if the taker is not in the
 * map any more. */
static __always_inline void find_taker(struct accelerate_lane *lane,
    const struct accelerate_lane_key *key, struct accelerate_counts *c)
{
	const __u64 *taker = bpf_map_lookup_elem(&taker_places, key);

	if (!taker)
		return;
	lane->taker = *taker;
	bpf_map_delete_elem(&taker_places, key);
	if (c && lane->role == ACCELERATE_EITHER && lane->key.netns & ACCELERATE_DIALLED)
		add(&c->lanes, 1);
}

/* How much more the taker's queue takes; nothing while it has something to read from TCP. */
static __always_inline __u32 room_of(__u64 taker, __u64 giver)
{
	__u32 used, all;

	if (field_of(taker, fields.copied_seq) != field_of(giver, fields.write_seq))
		return 0;
	used = field_of(taker, fields.rmem_alloc);
	all = field_of(taker, fields.rcvbuf) / 2;
	return used < all && all - used >= GIVE_AT_LEAST ? all - used : 0;
}

/* The app's end hears its answers by TCP.  If it never writes there, it acknowledges each answer by
 * a packet of its own: as many packets as were saved (ebpf-redirect.md 12).  It waits with that,
 * and acknowledges two at once, once a few of its requests went by TCP; after a pause it forgets.
 */
static __always_inline bool is_to_be_seen(struct accelerate_lane *lane, __u32 size)
{
	__u32 n;

	if (lane->role != ACCELERATE_GIVER || size >= SHORT)
		return false;
	n = lane->sends++;
	return n < SHORT_FIRST || n % SHORT_EACH == 0;
}

SEC("sk_msg")
int redirect_give(struct sk_msg_md *msg)
{
	struct bpf_sock *sk = msg->sk;
	struct accelerate_lane_key key;
	struct accelerate_counts *c;
	struct accelerate_lane *lane;
	__u32 room = 0, size = msg->size;

	/* A giver has this program, and this program both maps: they outlive their pins with it. */
	asm volatile("" ::"r"(&givers));
	lane = sk ? bpf_sk_storage_get(&lanes, sk, NULL, 0) : NULL;
	if (!lane || !is_giver(lane))
		return SK_PASS;
	key = other_end(lane);
	c = counts_of(lane);
	if (!lane->taker)
		find_taker(lane, &key, c);
	if (lane->taker && may_send(sk) && !is_to_be_seen(lane, size))
		room = room_of(lane->taker, place_of(lane));
	if (room && size > room) {
		bpf_msg_apply_bytes(msg, room);
		size = room;
	}
	if (room && bpf_msg_redirect_hash(msg, &takers, &key, BPF_F_INGRESS) != SK_PASS)
		room = 0;
	if (c)
		add(room ? &c->given : &c->passed, size);
	return SK_PASS;
}

/* --- the app asks for something else --- */

/* A giver's send tells nobody that its pages are free again, and a TLS of the kernel's gets no key
 * on such a socket (ebpf-redirect.md 12): so neither is to be had there.  The answers are those of
 * a kernel that lacks them. */
SEC("cgroup/setsockopt")
int redirect_setsockopt(struct bpf_sockopt *ctx)
{
	const bool zerocopy = ctx->level == SOL_SOCKET_ && ctx->optname == SO_ZEROCOPY_;
	const bool ulp = ctx->level == SOL_TCP_ && ctx->optname == TCP_ULP_;
	struct bpf_sock *sk = ctx->sk;
	struct accelerate_lane *lane;

	if (ctx->optlen > PAGE)
		ctx->optlen = 0; /* the kernel takes the app's own, not what we were shown */
	if ((!zerocopy && !ulp) || !sk)
		return 1;
	lane = bpf_sk_storage_get(&lanes, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	if (!lane)
		return 1;
	if (lane->role && lane->role != ACCELERATE_NEVER) {
		bpf_set_retval(zerocopy ? -EOPNOTSUPP_ : -ENOENT_);
		return 0;
	}
	lane->role = ACCELERATE_NEVER;
	return 1;
}
