/* lua.h - status.lua in the Lua that Envoy has, with envoy.lua for Envoy.  For tests. */
#pragma once
#include <luajit-2.1/lua.h>
#include <stddef.h>

/* Aborts where it cannot be made.  What is compiled at run time is off: it would not be counted. */
lua_State *lua_new(void);
/* One request (envoy.lua); aborts with what Lua says when the script fails. */
void lua_ask(lua_State *l, const char *request, size_t len);
