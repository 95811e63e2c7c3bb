-- Step: count the amounts of each group in its slot and its ranking.
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
      if group.unseen[i] and (event < 0 or (event > 0 and group.values[i] ~= group.olds[i])) then
        call('HSET', group.ranking.reached, group.members[i], tag(board.offset, math.abs(event)))
      end
    end
  end
end

for i = 1, #groups do
  local group = groups[i]
  if i > 1 then judge(group) end  -- after what the groups before have written to the same ranking
  local members, held, ranking = group.members, group.held, group.ranking
  if tag_hidden and next(group.unseen) then tag_hidden(board, group) end
  if #held > 0 then
    call('HSET', group.slot, unpack(held))
    if group.fresh == #members then call('ZADD', slots, group.start, group.start) end  -- the slot may be new
  end
  if group.emptied then call('HDEL', group.slot, unpack(group.emptied)) end
  put(ranking, board.offset, members, group.names, group.old, group.new, group.orders)
  if group.metadata then write_metadata(group, group.changed) end
  if contest then write_votes(group) end
  if rules.cap then trim(ranking, group.slot) end
end
