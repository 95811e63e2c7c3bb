#!lua
-- Keeps marks of a ranking, and says which of them is the baseline, against which movement is measured: the one of an
-- hour ago, or of the end of the last day or week. A mark has the first records, and digests of the members after them,
-- which later calls add in steps. A board without records has no marks. The board's position stays the same.
-- KEYS ranking, levels, meta
-- KEYS baseline — hash: epoch and suffix of the ranking; marks: a list, the oldest first, packed by `cmsgpack`; since:
--         the time for which the first of them stands; at, gained: when the board was last looked at, and the sum of
--         all amounts that it had counted by then; for each mark rows:<id>, as packed by `cmsgpack`: {member, score, …},
--         and deep:<id>: four bytes for each of the next members, the first 31 bits of the SHA-1 of the member, and a
--         bit that is 1 if its score equals the score before it
-- A mark has its id; at and till (ms): while the ranking was as in the mark; step: the start of the five minutes, day or
--         week of `till`; offset, gained and ranked (the number of records) at that time; known: how many have a rank
-- Request: BaselineRequest
-- Returns {'ok', since, wait, id, known, span, gain, more} — since and id of the baseline, empty if there is none; the
--         time until the next look is due, in milliseconds; how many ranks it knows; the time from `since` to the last
--         look, and by how much the sum of all amounts grew in it; and the mark to which this call or the next one adds
--         digests, or an empty string
--         {'moved', now} — the time is not in the day or week of the caller
--@include reign
--@include page
local MINUTE = 60000
local STEP, HOUR = 5 * MINUTE, 60 * MINUTE

local state = redis.call('HMGET', meta, 'epoch', 'newest', 'latest', 'reign', 'gained', 'offset', 'clock', 'ruled')
set_clock(state[7])
local newest = tonumber(state[2])
if state[1] ~= request.epoch then return {'epoch', state[1] or ''} end
local refused = unchecked(state[4])
if refused then return refused end
if (request.ruled or false) ~= state[8] then return {'ruled'} end
if not fits(view.clock, newest, nil) then return replan(newest, tonumber(state[3])) end
if request.ends and (now < request.begun or now >= request.ends) then return {'moved', digits(now)} end

local begun = request.begun or now - now % STEP
local oldest = request.begun or begun - HOUR  -- a mark that stands for this time is old enough
local held = redis.call('HMGET', baseline, 'epoch', 'suffix', 'marks', 'since', 'at', 'gained')
local marks = held[1] == request.epoch and held[2] == view.suffix and cmsgpack.unpack(held[3]) or {}
if marks[1] and marks[#marks].step - begun > HOUR then marks = {} end  -- the store's clock was set back
local last = marks[#marks]
local since, at, gained = tonumber(held[4]), tonumber(held[5]), held[6]

local function answer(more)
  local span = marks[1] and STEP or MINUTE
  local wait = span - store_now % span
  if request.ends then wait = math.min(wait, request.ends - store_now) end
  if view.suffix ~= '' and view.clock.till then wait = math.min(wait, view.clock.till - store_now) end
  if not marks[1] then return {'ok', '', digits(wait), '', 0, '0', '0', ''} end
  local gain = tonumber(gained) - tonumber(marks[1].gained)
  return {'ok', digits(since), digits(wait), marks[1].id, marks[1].known, digits(at - since), digits(gain), more or ''}
end

local function members(start, limit, ranked)
  local rows = rows_at(start, limit, ranked)
  if view.tagged then
    for i = 1, #rows, 2 do rows[i] = string.sub(rows[i], 15) end
  end
  return rows
end

if request.mark then  -- a process adds digests to the mark that it has taken
  local mark
  for _, one in ipairs(marks) do
    if one.id == request.mark then mark = one end
  end
  local ranked = redis.call('ZCARD', ranking)
  if not mark or mark.known >= math.min(ranked, request.most) then return answer() end
  local rows = members(mark.known - 1, request.limit + 1, ranked)
  local more = {redis.call('HGET', baseline, 'deep:' .. mark.id) or ''}
  for i = 3, #rows, 2 do
    local digest = tonumber(string.sub(redis.sha1hex(rows[i]), 1, 8), 16)
    more[#more + 1] = struct.pack('>I4', digest - digest % 2 + (rows[i + 1] == rows[i - 1] and 1 or 0))
  end
  mark.known = mark.known + #more - 1
  redis.call('HSET', baseline, 'deep:' .. mark.id, table.concat(more), 'marks', cmsgpack.pack(marks))
  return answer(mark.known < math.min(ranked, request.most) and mark.id)
end

local due = not last or last.step < begun
if not due and now - now % STEP <= at then return answer() end
local fields, dropped, more = {}, {}, nil
if due then
  local ranked = redis.call('ZCARD', ranking)
  if ranked == 0 then
    marks = {}
    if held[1] then redis.call('DEL', baseline) end
    return answer()
  end
  if last and last.offset == state[6] then  -- the ranking is still as in the last mark
    last.step, last.till = begun, now
  else
    local rows = members(0, request.limit, ranked)
    local mark = {id = digits(now), at = now, till = now, step = begun, offset = state[6], gained = state[5] or '0'}
    mark.ranked, mark.known = ranked, #rows / 2
    marks[#marks + 1] = mark
    fields = {'rows:' .. mark.id, cmsgpack.pack(rows)}
    if mark.known < math.min(ranked, request.most) then more = mark.id end
  end
  while marks[2] and marks[2].step <= oldest do
    local id = table.remove(marks, 1).id
    dropped[#dropped + 1], dropped[#dropped + 2] = 'rows:' .. id, 'deep:' .. id
  end
end
since, at, gained = math.min(math.max(marks[1].at, oldest), marks[1].till), now, state[5] or '0'
if held[1] and not last then redis.call('DEL', baseline) end  -- it is of another epoch or period
redis.call('HSET', baseline, 'epoch', request.epoch, 'suffix', view.suffix, 'marks', cmsgpack.pack(marks),
  'since', digits(since), 'at', digits(now), 'gained', gained, unpack(fields))
if #dropped > 0 then redis.call('HDEL', baseline, unpack(dropped)) end
return answer(more)
