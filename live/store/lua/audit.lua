#!lua flags=allow-oom
-- Compares a ranking with its slots for some members, all at one instant. On request it corrects the ranking.
-- KEYS[1] ranking — sorted set: name, score
-- KEYS[2] reached — hash: member, tag
-- KEYS[3] levels — sorted set: each score in the ranking
-- KEYS[4] meta — hash: the board's state
-- KEYS[5] slots — sorted set: the start of every slot, scored by itself
-- KEYS[6] hidden — hash: the members without a rank
-- KEYS[7] journal — stream: what SQL does not hold yet
-- KEYS[8...] held — the hashes of all slots of the ranking, in the order of their starts
-- Request: AuditRequest
-- Returns {'ok', offset, ranked, {sum, ...}, member, score, held, ...} — ranked is the number of records among these
--         members; together, the sums are what the slots hold of these members, in exact parts; then each member whose
--         score ('' for no record) differs from what the slots hold
--         {'slots'} — the slots have changed: ask again with their new store keys
--         {'reign', offset, link, epoch, resending} — nobody has checked the board after a failover; see `lib/reign`
local request = cmsgpack.unpack(ARGV[1])
local reign = ARGV[2] or ''
local ranking, reached, levels, meta, slots, hidden, journal = unpack(KEYS, 1, 7)
--@include clock
--@include reign
--@include board
--@include ranking
--@include journal
--@include same_slots
local board, members = read_board(), request.members or {}
if board.epoch ~= request.epoch then return {'slots'} end
local refused = request.repair and unchecked(board.reign)
if refused then return refused end
if request.tables then
  if not call('ZSCORE', slots, request.starts[1]) then return {'slots'} end
elseif not same_slots(request.starts or {}) then
  return {'slots'}
end
if #members == 0 then return {'ok', digits(board.offset), '0', {}} end

local sums = {}
for key = 8, #KEYS do
  local values = call('HMGET', KEYS[key], unpack(members))
  for i = 1, #members do
    local value = tonumber(values[i])
    if value then sums[i] = (sums[i] or 0) + value end
  end
end

local audited = {key = ranking, reached = reached, levels = levels, suffix = ''}
local names, scores = look_up(audited, members)
local unseen = hidden_of(members)
local ranked, sum, exact, drift, new = 0, 0, {}, {}, {}
for i = 1, #members do
  local held, score = sums[i], scores[i]
  if unseen[i] or held == 0 and zero_is_none then held = nil end
  if math.abs(sum + (held or 0)) > EXACT then
    exact[#exact + 1] = digits(sum)
    sum = 0
  end
  sum = sum + (held or 0)
  if score then ranked = ranked + 1 end
  new[i] = held
  if score == held then
    new[i] = false
  else
    drift[#drift + 1], drift[#drift + 2] = members[i], score and digits(score) or ''
    drift[#drift + 1] = digits(held or 0)
  end
end
exact[#exact + 1] = digits(sum)

if request.repair and #drift > 0 then
  announce(board)
  put(audited, board, members, names, scores, new)
  record_tags(board, granted)
  commit(board)
end
return {'ok', digits(board.offset), digits(ranked), exact, unpack(drift)}
