#!lua flags=no-writes
-- Reads consecutive records and the board's position, at one instant.
-- KEYS ranking, reached, levels, meta, metadata
-- Request: ReadRequest
-- Returns {epoch, offset, rank_count, total, start, rank, {name, score, ...}, {JSON, ...}, described} — epoch is '' for
--         no board; total is a number, or a number, '+', and a second number in units of 2^40; start is '' when the
--         member is not on the board; rank belongs to the first record; described counts the members with metadata
--         {epoch, offset} — the board is at the position that the caller knows
--@include page
--@include position
local head, refusal = current_position()
if refusal then return refusal end
if request.epoch == head.epoch and request.offset == tonumber(head.offset) then return {head.epoch, head.offset} end
local mode, limit, count = request.mode, request.limit, head.count
local registered = view.described and redis.call('HLEN', metadata) or 0
local reply = {head.epoch, head.offset, digits(count), head.total, '', '', {}, {}, registered}

local start
if mode == 'rank' then
  start = request.number
elseif mode == 'after' then
  local position, exact = place(digits(request.number), request.name)
  start = exact and position + 1 or position
elseif mode == 'before' then
  local position = place(digits(request.number), request.name)
  start = math.max(0, position - limit)
  limit = position - start
elseif mode == 'score' then
  local position = better(ranking, digits(request.number))
  start = math.max(0, position - math.floor(limit / 2))
else
  start, limit = around(request.name, request.number)
end
if start then reply[5], reply[6], reply[7], reply[8] = page_at(start, limit, count) end
return reply
