/* lua.c - see lua.h. */
#include "lua.h"
#include "envoy.lua.h"
#include "status.lua.h"
#include <luajit-2.1/lauxlib.h>
#include <luajit-2.1/luajit.h>
#include <luajit-2.1/lualib.h>
#include <stdio.h>
#include <stdlib.h>

static void must(lua_State *l, int status)
{
	if (!status)
		return;
	fprintf(stderr, "%s\n", lua_tostring(l, -1));
	abort();
}

lua_State *lua_new(void)
{
	lua_State *l = luaL_newstate();

	if (!l)
		abort();
	luaL_openlibs(l);
	luaJIT_setmode(l, 0, LUAJIT_MODE_ENGINE | LUAJIT_MODE_OFF);
	must(l, luaL_dostring(l, envoy_lua));
	must(l, luaL_dostring(l, status_lua));
	return l;
}

void lua_ask(lua_State *l, const char *request, size_t len)
{
	lua_getglobal(l, "run");
	lua_pushlstring(l, request, len);
	must(l, lua_pcall(l, 1, 0, 0));
	lua_gc(l, LUA_GCCOLLECT, 0);
}
