/* accelerate.bpf.c - what an app writes to its own Envoy goes from socket to socket.
 *
 * A connection between the two is established -> the app's end, the giver, is put into `givers`,
 * Envoy's end, the taker, into `takers`, both under the same key -> the app sends:
 * redirect_give looks at the taker -> the bytes go to the taker's queue, or by TCP.
 *
 * A taker reads its queue before what came by TCP.  So bytes go to the queue only while nothing
 * that came by TCP is unread; and only while the queue is short, for the kernel does not bound it.
 * A giver never waits here: what does not go to the queue goes by TCP, which makes it wait.
 *
 * The other way stays with TCP: splice(2), SO_RCVLOWAT and urgent data do not see the queue, and an
 * app may use them.  Envoy does not (ebpf-redirect.md 12).
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

enum { GIVE_AT_LEAST = 4096, PAGE = 4096 };

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

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct accelerate_counts);
} lane_counts SEC(".maps");

static __always_inline struct accelerate_counts *counts(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&lane_counts, &zero);
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

/* Dialled by the app, and accepted by Envoy (outbound); or by Envoy, from 127.0.0.6 or ::6, and
 * accepted by the app (inbound). */
static __always_inline enum accelerate_role role_of(
    struct bpf_sock *sk, const struct ends *e, bool dialled)
{
	const struct redirect_socket *s;

	if (is_envoys(dialled ? &e->local : &e->remote))
		return dialled ? ACCELERATE_TAKER : ACCELERATE_GIVER;
	s = bpf_sk_storage_get(&sockets, sk, NULL, 0);
	if (!s)
		return 0;
	if (dialled)
		return s->kind == REDIRECT_SOCKET_DIALLED ? ACCELERATE_GIVER : 0;
	return s->kind == REDIRECT_SOCKET_LISTENS_OUT || s->kind == REDIRECT_SOCKET_ACCEPTED
		   ? ACCELERATE_TAKER
		   : 0;
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
	struct accelerate_counts *c = counts();
	__u64 place = place_of(lane);

	if (bpf_sock_hash_update(ctx, &takers, &key, BPF_ANY))
		return; /* no room: the giver will find nobody */
	bpf_map_update_elem(&taker_places, &key, &place, BPF_ANY);
	bpf_sock_ops_cb_flags_set(ctx, ctx->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_STATE_CB_FLAG);
	if (c)
		c->lanes++;
}

/* What goes by TCP after all leaves in pieces, of which the last would wait for the taker's word on
 * the one before: 40 ms. */
static __always_inline void become_giver(struct bpf_sock_ops *ctx, struct accelerate_lane *lane)
{
	int on = 1;

	if (bpf_sock_hash_update(ctx, &givers, &lane->key, BPF_ANY))
		lane->role = 0; /* no room: as without */
	else
		bpf_setsockopt(ctx, SOL_TCP_, TCP_NODELAY_, &on, sizeof(on));
}

static __always_inline void on_established(
    struct bpf_sock_ops *ctx, struct bpf_sock *sk, bool dialled)
{
	const struct ends e = ends_of(ctx);
	enum accelerate_role role = role_of(sk, &e, dialled);
	struct accelerate_lane *lane =
	    bpf_sk_storage_get(&lanes, sk, NULL, role ? BPF_SK_STORAGE_GET_F_CREATE : 0);

	if (!lane || lane->role == ACCELERATE_NEVER)
		return;
	lane->role = 0; /* of a socket's earlier connection nothing is left */
	lane->taker = 0;
	if (!role)
		return;
	lane->place = (__u64)sk;
	if (is_mptcp(lane))
		return;
	lane->role = role;
	lane->key = key_of(ctx, &e, dialled);
	if (role == ACCELERATE_TAKER)
		take_place(ctx, lane);
	else
		become_giver(ctx, lane);
}

static __always_inline void on_state(struct bpf_sock_ops *ctx, struct bpf_sock *sk)
{
	const struct accelerate_lane *lane;

	if (ctx->args[1] != BPF_TCP_CLOSE)
		return;
	lane = bpf_sk_storage_get(&lanes, sk, NULL, 0);
	if (lane && lane->role == ACCELERATE_TAKER)
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

/* Once: what stands there is looked at only to decide, and goes nowhere if the taker is not in the
 * map any more. */
static __always_inline void find_taker(struct accelerate_lane *lane)
{
	const __u64 *taker = bpf_map_lookup_elem(&taker_places, &lane->key);

	if (!taker)
		return;
	lane->taker = *taker;
	bpf_map_delete_elem(&taker_places, &lane->key);
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

SEC("sk_msg")
int redirect_give(struct sk_msg_md *msg)
{
	struct bpf_sock *sk = msg->sk;
	struct accelerate_counts *c = counts();
	struct accelerate_lane *lane;
	__u32 room = 0, size = msg->size;

	lane = sk ? bpf_sk_storage_get(&lanes, sk, NULL, 0) : NULL;
	if (!lane || lane->role != ACCELERATE_GIVER)
		return SK_PASS;
	if (!lane->taker)
		find_taker(lane);
	if (lane->taker && may_send(sk))
		room = room_of(lane->taker, place_of(lane));
	if (room && size > room) {
		bpf_msg_apply_bytes(msg, room);
		size = room;
	}
	if (room && bpf_msg_redirect_hash(msg, &takers, &lane->key, BPF_F_INGRESS) != SK_PASS)
		room = 0;
	if (c && room)
		c->given += size;
	else if (c)
		c->passed += size;
	return SK_PASS;
}

/* --- the app asks for something else --- */

/* A giver's send tells nobody that its pages are free again, and its plain text would go past a TLS
 * of the kernel's: so neither is to be had there.  The answers are those of a kernel that lacks
 * them. */
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
	if (lane->role == ACCELERATE_GIVER || lane->role == ACCELERATE_TAKER) {
		bpf_set_retval(zerocopy ? -EOPNOTSUPP_ : -ENOENT_);
		return 0;
	}
	lane->role = ACCELERATE_NEVER;
	return 1;
}
