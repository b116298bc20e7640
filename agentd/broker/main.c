/* broker.c - agentd: the root half, libc only, no parser of anything a stranger wrote.
 *
 *   broker_run       start, signals, end           broker_options   the command line
 *   requests       the request table, one turn   life_worker    starting it, without privilege
 *   pods       directories, what is kept     broker_io        packets, sealed copies
 *   netns      whose namespace it is         netns_address   what addresses are in it
 *   broker_listener   a socket at a path            broker_file      reading root's, writing pods'
 *   requests_follow     inotify                       broker_rundir    <run>, one broker at a time
 *   broker_loop       epoll                         broker_log       lines and reasons
 *   broker_caps       giving them up                broker_check     agentd --check
 *   keeper     one worker after the other    broker_fdstore      descriptors that outlive us
 *   broker_state      what outlives the worker      pod_peer      who is at the other end
 *   succession another agentd takes over:
 *   upgrade    ... in this process           upgrade_table     ... what it gets there
 *   handover   ... from beside it            notify    systemd
 */
#include "run.h"

int main(int argc, char **argv)
{
	return broker_run(argc, argv);
}
