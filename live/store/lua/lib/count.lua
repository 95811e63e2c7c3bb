-- Step: count the amounts of each group in its slot and its ranking.
local sign = rules.order == 'forward' and -1 or 1
local threshold
local counted = 0  -- the sum of all amounts, if the board adds up amounts

if rules.cap then
  -- Returns the score that a new member needs to get into a full ranking of best values, where no record expires. So
  -- the script does not add a member only to trim it at once. The score is signed so that more is better. It is nil if
  -- any score is enough.
  function threshold(ranking)
    if operation == 'set' or call('ZCARD', ranking.key) < rules.cap then return end
    local last = rules.order == 'forward' and 'ZREVRANGE' or 'ZRANGE'
    return sign * tonumber(call(last, ranking.key, 0, 0, 'WITHSCORES')[2])
  end
end

-- Sets for each member of a group: `names` and `old`, its record so far; `new`, its score, nil for no record and false
-- for no change; `changed`, whether its value changes, on boards whose metadata depends on that; and `unseen`, whether
-- it is hidden. Sets what the slot will hold (`held`), and the members that leave it (`emptied`). Returns the group.
local function judge(group)
  local members, amounts, values, ranking = group.members, group.amounts, group.values, group.ranking
  local orders = rules.ties and group.orders
  local names, old = look_up(ranking, members)
  local dropped = group.dropped  -- members that leave the slot, whatever their values are
  local unseen, least = hidden_of(members), threshold and threshold(ranking)
  local new, changed, held, emptied, h = {}, group.metadata and {}, {}, nil, 0
  for j = 1, #members do
    local value, before = values[j], old[j]
    local score = value
    if dropped and dropped[j] then score = nil end
    if incr then
      score = (before or 0) + amounts[j]
      if rules.summed then counted = counted + amounts[j] end
      if score == 0 and (zero_is_none or dropped and dropped[j]) then score = nil end
    elseif orders and amounts[j] ~= value then
      orders[j] = 0  -- the member holds a better amount
    end
    if least and not before and not unseen[j] and sign * score < least then
      new[j] = false
    else
      local drops = dropped and dropped[j] and (not incr or value == 0)
      if drops or value == 0 and zero_is_none then
        emptied = emptied or {}
        emptied[#emptied + 1] = members[j]
      else
        held[h + 1], held[h + 2] = members[j], value
        h = h + 2
      end
      new[j] = score
      local is_changed = score ~= before
      if unseen[j] then new[j], is_changed = false, value ~= group.olds[j] end
      if changed then changed[j] = is_changed end
    end
  end
  group.names, group.old, group.new, group.changed, group.unseen = names, old, new, changed, unseen
  group.held, group.emptied = held, emptied
  return group
end

local write_metadata, tag_hidden

if not incr then
  function write_metadata(group, changed)
    for i, text in ipairs(group.metadata) do
      if changed[i] or operation == 'set' then
        if text == '' then
          call('HDEL', group.ranking.metadata, group.members[i])
        else
          call('HSET', group.ranking.metadata, group.members[i], text)
        end
      end
    end
  end
end

if rules.ties then
  -- A hidden member keeps its place among ties, so it gets a tag when its value changes.
  function tag_hidden(board, group)
    for i, event in ipairs(group.orders) do
      local name, time = group.names[i], group.times and group.times[i] or arrival(board)
      local is_changed = group.values[i] ~= group.olds[i]
      if group.unseen[i] and event ~= 0 and (name == '' or moves(name, event, time, is_changed)) then
        call('HSET', group.ranking.reached, group.members[i], tag(time, board.offset, math.abs(event)))
      end
    end
  end

  -- Some members have an event with a time, and another event without one (its number is in `arrivals`). Only now is it
  -- known which of the two counts.
  for i = 1, #groups do
    local group, at = groups[i], arrival(board)
    for j, number in pairs(group.arrivals or {}) do
      if incr and at >= group.times[j] or not incr and at < group.times[j] then
        group.orders[j], group.times[j] = number, false
      end
    end
  end

  -- A renamed member keeps its tag under its new name.
  local renamed = {}
  for i = 1, batch.tags and #groups or 0 do
    local group, reached, suffix = groups[i], groups[i].ranking.reached, groups[i].suffix
    local tag = batch.tags[suffix]
    if tag ~= '' then
      call('HSET', reached, group.members[1], tag)
      renamed[suffix] = true
    end
    if renamed[suffix] then group.orders[1] = 0 end
  end
end

for i = 1, #groups do
  local group = judge(groups[i])  -- this reads what earlier groups have written to the same ranking
  local members, held, ranking = group.members, group.held, group.ranking
  if tag_hidden and next(group.unseen) then tag_hidden(board, group) end
  if #held > 0 then
    call('HSET', group.slot, unpack(held))
    if group.fresh == #members then call('ZADD', slots, group.start, group.start) end  -- the slot may be new
  end
  if group.emptied then call('HDEL', group.slot, unpack(group.emptied)) end
  put(ranking, board, members, group.names, group.old, group.new, group)
  if group.dropped and rules.ties and not incr then
    for j in pairs(group.dropped) do call('HDEL', ranking.reached, members[j]) end
  end
  if group.metadata then write_metadata(group, group.changed) end
  if contest then write_votes(group) end
  if rules.cap then trim(ranking, board, group.slot) end
end
