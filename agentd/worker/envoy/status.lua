-- status.lua: what pilot-agent answers on a pod's status port, answered by the pod's own Envoy (status-listener.md 1, 3).
--
-- A route says by its metadata which function is meant ("serve") and with which values; worker/envoy/status.c writes it.  Here is
-- no value of a pod.  A request that this script cannot answer gets the route's own direct response: 503.
-- Nothing is read but Envoy's admin and what the pod serves.  After a call Envoy has taken back what it lent: headers and metadata
-- are asked for again.
-- Anybody can ask, with 60 KiB of headers, and this thread of Envoy serves nothing else meanwhile.  So a list in a header has a bound
-- before it is looked at, and the work of each pattern grows with its text, not with the square of it (tests/work counts).

local ADMIN = "prometheus_stats"
local TEXT, OPENMETRICS = "text/plain; version=0.0.4; charset=utf-8", "application/openmetrics-text; version=%s; charset=utf-8"
local FORWARDED = {["user-agent"] = true, ["x-prometheus-scrape-timeout-seconds"] = true}
local PAGE_MAX, PROBE_BODY_MAX = 10 * 1024 * 1024, 10 * 1024
local QUERY_MAX, ACCEPT_MAX, SECONDS_MAX = 1024, 1024, 16 -- Prometheus' Accept has 400
local DRAINING = "agentd.draining_since_ms" -- in Envoy's runtime, for all of its threads
local NOT_RECEIVED, REJECTED, PARTLY = "config not received from XDS server (is Istiod running?)",
    "config received from XDS server, but was rejected", "config not fully received from XDS server"

local function ask(handle, method, path, ms)
    local headers, body = handle:httpCall(ADMIN, {[":method"] = method, [":path"] = path, [":authority"] = "localhost"}, nil, ms)
    return headers[":status"], body or ""
end

local function answer(handle, status, text)
    handle:respond({[":status"] = status, ["content-type"] = "text/plain; charset=utf-8"}, text)
end

-- True: it was another method, and is answered.
local function refused_method(handle, ...)
    local method = handle:headers():get(":method")
    for _, allowed in ipairs({...}) do
        if method == allowed then return false end
    end
    answer(handle, "405", "only " .. table.concat({...}, ", "))
    return true
end

-- What goes on to the app has no body.  True: it had one, and is answered.
local function refused_body(handle)
    local length, chunks = handle:headers():get("content-length"), handle:headers():get("transfer-encoding")
    if length and length ~= "0" or chunks or not length and handle:body() then
        answer(handle, "400", "no body")
        return true
    end
    return false
end

local function keep_only(headers, kept)
    local names = {}
    for name in pairs(headers) do
        if name:sub(1, 1) ~= ":" and not kept(name) then names[#names + 1] = name end
    end
    for _, name in ipairs(names) do headers:remove(name) end
end

local serve, finish = {}, {}

-- Ready: CDS and LDS came at least once, and Envoy says that it is live.
function serve.ready(handle)
    local _, page = ask(handle, "GET", "/stats?usedonly&filter=%5E(cluster_manager%5C.cds%7Clistener_manager%5C.lds)%5C." ..
        "update_(success%7Crejected)%24", 1000)
    local function of(what, which) return tonumber(page:match("%." .. what .. "%.update_" .. which .. ": (%d+)")) or 0 end
    local cds, lds = of("cds", "success"), of("lds", "success")
    local bad_cds, bad_lds = of("cds", "rejected"), of("lds", "rejected")
    if cds > 0 and lds > 0 then
        local status, text = ask(handle, "GET", "/ready", 3000)
        return answer(handle, status == "200" and "200" or "503", status ~= "200" and text or nil)
    end
    local why = bad_cds + bad_lds > 0 and REJECTED or cds + lds > 0 and PARTLY or NOT_RECEIVED
    answer(handle, "503", ("%s: cds updates: %d successful, %d rejected; lds updates: %d successful, %d rejected\n"):format(
        why, cds, bad_cds, lds, bad_lds))
end

-- What a scrape accepts, in the forms that may be merged: text and, from an app, OpenMetrics.
local function accepted(header, open_metrics)
    local forms = {}
    if not header or #header > ACCEPT_MAX then header = "" end
    for form in header:gmatch("[^,]+") do
        local kind, plain, q = nil, "", 1
        for part in form:gmatch("[^;]+") do
            local word = part:match("%S+") or ""
            if not kind then
                kind, plain = word, word
            elseif word:find("^q=") then
                q = tonumber(word:match("^q=([%d.]+)") or "") or 0
            elseif word ~= "" then
                plain = plain .. ";" .. word
            end
        end
        if kind == "*/*" or kind == "*" then kind, plain = "text/plain", "text/plain;version=0.0.4" end
        if kind == "application/*" then kind, plain = "application/openmetrics-text", "application/openmetrics-text;version=0.0.1" end
        local fits = kind == "text/plain" or kind == "text/*" or (open_metrics and kind == "application/openmetrics-text")
        if fits and #forms < 9 then forms[#forms + 1] = {plain, q, #forms} end
    end
    table.sort(forms, function(a, b) if a[2] ~= b[2] then return a[2] > b[2] end return a[3] < b[3] end)
    local list = {}
    for i, form in ipairs(forms) do list[i] = ("%s;q=0.%d"):format(form[1], #forms - i + 1) end
    return #list > 0 and table.concat(list, ",") or "text/plain;version=0.0.4"
end

-- The version of OpenMetrics, or "text".
local function format_of(content_type)
    if not (content_type or ""):lower():find("^application/openmetrics%-text") then return "text" end
    local version = content_type:match("version=\"?([%d.]+)") or "0.0.1"
    return (version == "0.0.1" or version == "1.0.0") and version or "text"
end

local function lined(page)
    return (page == "" or page:sub(-1) == "\n") and page or page .. "\n"
end

local function timeout_ms(headers)
    local text = headers:get("x-prometheus-scrape-timeout-seconds") or ""
    local seconds = #text <= SECONDS_MAX and not text:find("[^%d.]") and tonumber(text)
    return seconds and math.max(1, math.min(3600000, math.floor(seconds * 1000)))
end

-- All pages but the last are fetched here; the last is the app's answer to this request, and only passes through.
function serve.metrics(handle, route)
    if refused_method(handle, "GET", "HEAD") or refused_body(handle) then return end
    local headers, pages, formats = handle:headers(), {}, {}
    local path = headers:get(":path")
    local query = path:sub(path:find("?", 1, true) or #path + 1)
    if #query > QUERY_MAX then return answer(handle, "414", "the query is too long") end
    local ms, targets = timeout_ms(headers), route:get("targets") or {}
    local of_envoy, of_app = accepted(headers:get("accept"), false), accepted(headers:get("accept"), true)
    local last, with_envoy = targets[#targets], route:get("envoy")
    local agent, timeout = headers:get("user-agent"), headers:get("x-prometheus-scrape-timeout-seconds")
    local function add(cluster, path, host, form)
        local got, page = handle:httpCall(cluster, {[":method"] = "GET", [":path"] = path, [":authority"] = host, ["accept"] = form,
            ["user-agent"] = agent, ["x-prometheus-scrape-timeout-seconds"] = timeout}, nil, ms or 60000)
        if got[":status"] ~= "200" or not page or #page > PAGE_MAX then return end
        if cluster ~= ADMIN then
            page = page:gsub("# EOF%s*$", "")
            formats[#formats + 1] = format_of(got["content-type"]) .. " "
        end
        pages[#pages + 1] = lined(page)
    end
    if last and with_envoy then add(ADMIN, "/stats/prometheus" .. query, "localhost", of_envoy) end
    for i = 1, #targets - 1 do add(targets[i].cluster, targets[i].path, targets[i].host, of_app) end
    local page = table.concat(pages)
    if not last and not with_envoy then return answer(handle, "200", "") end
    headers = handle:headers()
    headers:replace(":path", last and last.path or "/stats/prometheus" .. query)
    headers:replace(":authority", last and last.host or "localhost")
    keep_only(headers, function(name) return FORWARDED[name] end)
    headers:replace("accept", last and of_app or of_envoy)
    if ms then headers:replace("x-envoy-upstream-rq-timeout-ms", ("%d"):format(ms)) end
    local kept = handle:streamInfo():dynamicMetadata()
    kept:set("agentd.status", "page", page)
    kept:set("agentd.status", "formats", table.concat(formats))
    kept:set("agentd.status", "without_body", headers:get(":method") == "HEAD")
end

function finish.metrics(handle)
    local kept, headers = handle:streamInfo():dynamicMetadata():get("agentd.status"), handle:headers()
    if not kept then return end -- answered above
    local good = headers:get(":status") == "200" and not headers:get("content-encoding")
    local formats = kept["formats"] .. (good and format_of(headers:get("content-type")) or "")
    local version = formats:match("%S+") or "text"
    for other in formats:gmatch("%S+") do
        if other ~= version then version = "text" end
    end
    local empty = headers:get(":status") == "204" or headers:get("content-length") == "0"
    headers:replace(":status", "200")
    keep_only(headers, function() return false end)
    headers:replace("content-type", version ~= "text" and OPENMETRICS:format(version) or TEXT)
    if kept["without_body"] then return end
    local page = kept["page"] .. (version ~= "text" and (empty or not good) and "# EOF\n" or "")
    if empty then
        handle:body(true):setBytes(page)
        return
    end
    for chunk in handle:bodyChunks() do
        if not good then
            chunk:setBytes(page)
        elseif page ~= "" then
            chunk:setBytes(page .. chunk:getBytes(0, chunk:length()))
        end
        page = ""
    end
end

-- Envoy ends with status 0; it does so after this answer.
function serve.quit(handle)
    if refused_method(handle, "POST") then return end
    handle:httpCall(ADMIN, {[":method"] = "POST", [":path"] = "/quitquitquit", [":authority"] = "localhost"}, nil, 1000, true)
    answer(handle, "200", "OK")
end

function serve.drain(handle)
    if refused_method(handle, "POST") then return end
    local status, text = ask(handle, "POST", "/drain_listeners?inboundonly&graceful&skip_exit", 1000)
    answer(handle, status == "200" and "200" or "500", status == "200" and "OK" or text)
end

-- Milliseconds since the drain began; it begins with the first question.
local function draining_ms(handle)
    local now, _, page = handle:timestamp(), ask(handle, "GET", "/runtime", 2000)
    local since = tonumber(page:match('"' .. DRAINING:gsub("%.", "%%.") .. '".-"final_value": *"(%d+)"'))
    if since then return now - since end
    if ask(handle, "POST", "/drain_listeners?inboundonly&graceful", 2000) ~= "200" then return nil end
    ask(handle, "POST", ("/runtime_modify?%s=%.0f"):format(DRAINING, now), 2000)
    return 0
end

-- Of listeners, but for those that are Envoy's own: their ports are in `own`.  nil: Envoy did not say.
local function connections(handle, own)
    local status, page = ask(handle, "GET", "/stats?usedonly&filter=%5Elistener%5C..*%5C.downstream_cx_active%24", 2000)
    local sum = 0
    if status ~= "200" then return nil end
    for line in page:gmatch("[^\n]+") do
        local name, n = line:match("^listener%.(.+)%.downstream_cx_active: (%d+)$")
        local port = name and name:match("_(%d+)$")
        local mine = not name or name:find("worker_", 1, true) or name:find("^admin") or name:find("^envoy_internal_")
        for _, p in ipairs(own) do mine = mine or p == tonumber(port) end
        if not mine then sum = sum + tonumber(n) end
    end
    return sum
end

function serve.drain_wait(handle, route)
    if refused_method(handle, "GET") then return end
    local after, own = route:get("after_ms"), route:get("own")
    local ms = draining_ms(handle)
    local done = ms and ms >= after and (not own or connections(handle, own) == 0)
    answer(handle, done and "200" or "503", done and "OK" or ms and "draining" or "Envoy does not drain")
end

-- The app, at the address that was asked here: whoever asks chooses a port of the list, and no address.
local function app_address(handle, route)
    local host, own = handle:streamInfo():downstreamLocalAddress():match("^(.*):(%d+)$")
    return ("%s:%d"):format(route:get("host") or host, route:get("port")), own
end

function serve.http(handle, route)
    if refused_body(handle) then return end
    local headers, address, own = handle:headers(), app_address(handle, route)
    keep_only(headers, function(name) return name ~= "x-forwarded-proto" and name:sub(1, 8) ~= "x-envoy-" end)
    handle:streamInfo():dynamicMetadata():set("agentd.status", "address", address)
    headers:replace(":method", "GET")
    headers:replace(":path", route:get("path"))
    local authority, port = headers:get(":authority") or "", ":" .. own
    if authority:sub(-#port) == port then
        headers:replace(":authority", ("%s:%d"):format(authority:sub(1, -#port - 1), route:get("port")))
    end
end

-- A redirect is a success: the kubelet takes it for one.
function finish.http(handle)
    local headers, left = handle:headers(), PROBE_BODY_MAX
    if headers:get(":status"):find("^3") then
        headers:replace(":status", "200")
        left = 0
    end
    keep_only(headers, function(name) return name == "content-type" end)
    for chunk in handle:bodyChunks() do
        local n = chunk:length()
        if n > left then chunk:setBytes(chunk:getBytes(0, left)) end
        left = math.max(0, left - n)
    end
end

local function big_endian(n)
    return string.char(math.floor(n / 16777216) % 256, math.floor(n / 65536) % 256, math.floor(n / 256) % 256, n % 256)
end

-- grpc.health.v1: a request is its field 1, a text below 16 KiB; SERVING is field 1 of the answer, number 1.
function serve.grpc(handle, route)
    local service, message, address = route:get("service"), "", app_address(handle, route)
    if service ~= "" then
        local n = #service
        message = "\10" .. (n < 128 and string.char(n) or string.char(n % 128 + 128, math.floor(n / 128))) .. service
    end
    local _, body = handle:httpCall("agentd_probe_grpc", {[":method"] = "POST", [":path"] = "/grpc.health.v1.Health/Check",
        [":authority"] = address, ["content-type"] = "application/grpc", ["te"] = "trailers", ["user-agent"] =
        handle:headers():get("user-agent"), ["x-envoy-original-dst-host"] = address},
        "\0" .. big_endian(#message) .. message, route:get("timeout_ms"))
    answer(handle, body == "\0\0\0\0\2\8\1" and "200" or "500", nil)
end

function envoy_on_request(handle)
    local route = handle:metadata()
    local function_of = serve[route:get("serve") or ""]
    if function_of then function_of(handle, route) end
end

function envoy_on_response(handle)
    local function_of = finish[handle:metadata():get("serve") or ""]
    if function_of then function_of(handle) end
end
