-- The state of a board: the check of its epoch, and the announcement and the record of every change.
local call, tonumber, unpack = redis.call, tonumber, unpack  -- Lua finds locals faster than globals

local function read_board()
  local held = call('HMGET', meta, 'epoch', 'offset', 'newest', 'latest', 'bucket', 'frozen', 'made',
    'journal', 'left', 'reign', 'gained')
  return {
    epoch = held[1], offset = tonumber(held[2] or 0), newest = tonumber(held[3]), latest = tonumber(held[4]),
    bucket = tonumber(held[5]), frozen = held[6], made = held[7], journal = held[8], left = held[9], reign = held[10],
    gained = tonumber(held[11] or 0),
  }
end

-- Returns the state. If the caller knows another epoch, or nobody has checked the board, returns nil and the reply.
local function open_board()
  local board = read_board()
  if board.epoch ~= request.epoch then return nil, {'epoch', board.epoch or ''} end
  local refused = unchecked(board.reign)
  if refused then return nil, refused end
  return board
end

-- Makes the first write of every change: the store may forbid this write, and nothing after the first write may fail.
-- Subscribers receive the position when the script has ended.
local function announce(board)
  board.offset = board.offset + 1
  board.place = string.format('%.0f', board.offset)
  call('SPUBLISH', request.channel, board.epoch .. ':' .. board.place)
end

-- Makes the last write of every change, with more fields and their values. Returns the offset.
local function commit(board, ...)
  if board.appended then call('HSET', meta, 'journal', board.journal) end
  call('HSET', meta, 'offset', board.place, ...)
  return board.place
end
