-- Step: count the amounts of each group in its slot and its ranking.
local sign = rules.order == 'forward' and -1 or 1
local threshold, write_metadata, tag_hidden

if rules.cap then
  -- The score below which no new member gets into a full ranking of best values, where no record expires. Then
  -- the script need not add most members of a batch only to trim them. Signed so that more is better; nil for no
  -- threshold.
  function threshold(ranking)
    if operation == 'set' or call('ZCARD', ranking.key) < rules.cap then return end
    local last = rules.order == 'forward' and 'ZREVRANGE' or 'ZRANGE'
    return sign * tonumber(call(last, ranking.key, 0, 0, 'WITHSCORES')[2])
  end
end

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
  function tag_hidden(board, group, i)
    local event = group.orders[i]
    if event < 0 or (event > 0 and group.values[i] ~= group.olds[i]) then
      call('HSET', group.ranking.reached, group.members[i], tag(board.offset, math.abs(event)))
    end
  end
end

for i = 1, #groups do
  local group = groups[i]
  local members, amounts, values, ranking = group.members, group.amounts, group.values, group.ranking
  local names, old = look_up(ranking, members)
  local unseen, least = hidden_of(members), threshold and threshold(ranking)
  local new, changed, held, emptied, h = {}, group.metadata and {}, {}, nil, 0
  for j = 1, #members do
    local value, before = values[j], old[j]
    local score = value
    if incr then
      score = (before or 0) + amounts[j]
      if score == 0 then score = nil end
    end
    if least and not before and not unseen[j] and sign * score < least then
      new[j] = false
    else
      if value == 0 and incr then
        emptied = emptied or {}
        emptied[#emptied + 1] = members[j]
      else
        held[h + 1], held[h + 2] = members[j], value
        h = h + 2
      end
      new[j] = score
      local is_changed = score ~= before
      if unseen[j] then
        new[j], is_changed = false, value ~= group.olds[j]
        if tag_hidden then tag_hidden(board, group, j) end
      end
      if changed then changed[j] = is_changed end
    end
  end
  if h > 0 then
    call('HSET', group.slot, unpack(held))
    if group.fresh == #members then call('ZADD', slots, group.start, group.start) end  -- the slot may be new
  end
  if emptied then call('HDEL', group.slot, unpack(emptied)) end
  put(ranking, board.offset, members, names, old, new, group.orders)
  if group.metadata then write_metadata(group, changed) end
  if contest then write_votes(group) end
  if rules.cap then trim(ranking, group.slot) end
end
