/* run.h - agentd from its command line to its exit status. */
#pragma once

/* 0: ended as asked; 1: could not start; 2: usage; else the worker's own (128 + signal). */
int broker_run(int argc, char **argv);
