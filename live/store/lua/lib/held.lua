-- Step: do the members of a correction still hold what the caller has read? Somebody else may have corrected them too.
if request.held then
  local read = request.held
  if not same_slots(read.starts) then return {'changed'} end
  for i, slot in ipairs(held) do
    for j, member in ipairs(read.members) do
      if (call('HGET', slot, member) or '') ~= read.values[j][i] then return {'changed'} end
    end
  end
end
