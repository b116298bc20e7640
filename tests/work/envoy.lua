-- envoy.lua: Envoy as status.lua sees it, for one request: run(text).
--
-- A line of the text is a header of the request, "accept: */*".  "serve" is the route's function; "page" is the body of every answer, and
-- lines that begin with "<" are its headers.  What the script does with Envoy is checked: no error, and nothing but what Envoy takes.

local function new_headers()
    local all = {}
    return {all = all, get = function(_, name) return all[name] end,
        replace = function(_, name, value)
            assert(type(name) == "string" and type(value) == "string", "a header is text")
            all[name] = value
        end,
        remove = function(_, name) all[name] = nil end}
end

-- Of Envoy's headers pairs() walks through names and values.
local plain_pairs = pairs
function pairs(t) return plain_pairs(t.get and t.all or t) end

local function parse(text)
    local asked, given, page, serve = new_headers(), new_headers(), "", nil
    asked.all[":method"], asked.all[":path"], given.all[":status"] = "GET", "/stats/prometheus", "200"
    local line
    while text ~= "" do
        local last = text:find("\n", 1, true) or #text + 1
        line, text = text:sub(1, last - 1), text:sub(last + 1)
        local from = line:find(":", 2, true)
        local name, value = line:sub(1, (from or 1) - 1), line:sub((from or #line) + 2)
        if name == "serve" then
            serve = value
        elseif name == "page" then
            page = value .. "\n"
        elseif name:sub(1, 1) == "<" then
            given.all[name:sub(2)] = value
        elseif name ~= "" then
            asked.all[name] = value
        end
    end
    return asked, given, page, serve
end

local TARGETS = {}
for i = 1, 8 do TARGETS[i] = {cluster = "agentd_scrape_" .. i, path = "/metrics", host = "localhost:" .. 8080 + i} end

local function route_of(serve)
    local values = {serve = serve, envoy = true, targets = TARGETS, port = 8080, path = "/ok", service = "s", timeout_ms = 1000,
        after_ms = 0, own = {15020, 15021}}
    return {get = function(_, name) return values[name] end}
end

local function body_of(page)
    return {getBytes = function(_, from, n) return page:sub(from + 1, from + n) end, length = function() return #page end,
        setBytes = function(_, text) page = text end}
end

local function new_handle(request, route, page, kept)
    local metadata = {get = function() return kept[1] and kept or nil end,
        set = function(_, _, name, value) kept[1], kept[name] = true, value end}
    local handle = {headers_now = request, responded = false}
    function handle.headers() return handle.headers_now end
    function handle.metadata() return route end
    function handle.timestamp() return 1000 end
    function handle.httpCall() return {[":status"] = "200", ["content-type"] = "text/plain"}, page end
    function handle.streamInfo()
        return {dynamicMetadata = function() return metadata end, downstreamLocalAddress = function() return "10.0.0.1:15020" end}
    end
    function handle.respond(_, headers)
        assert(not handle.responded and headers[":status"]:find("^%d%d%d$"), "one answer")
        handle.responded = true
    end
    function handle.body() return request.all["transfer-encoding"] and body_of("x") or nil end
    function handle.bodyChunks()
        local chunks = {body_of(page), body_of(page)}
        return function() return table.remove(chunks) end
    end
    return handle
end

-- What the app is sent has bounds of its own.
local function check_passed(asked)
    assert(#(asked.all[":path"] or "") <= 1100, "a path that was not bounded")
    assert(#(asked.all.accept or "") <= 2048 or asked.all[":path"] == "/ok", "a list that was not bounded")
    assert(not asked.all["transfer-encoding"], "a body for the app")
end

function run(text)
    local asked, given, page, serve = parse(text)
    local kept, goes_on = {}, serve == "metrics" or serve == "http"
    local handle = new_handle(asked, route_of(serve), page, kept)
    envoy_on_request(handle)
    if handle.responded or not goes_on then return end
    check_passed(asked)
    handle.headers_now, handle.body = given, function() return body_of(page) end
    envoy_on_response(handle)
    assert(given.all[":status"], "a status")
end
