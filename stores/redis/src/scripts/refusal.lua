-- Whether another server wrote what is stored here, of which this one was a replica: what that one wrote last may be missing here.
local function elsewhere(stored, here)
  return stored.replid ~= here.replid and not string.match(here.earlier, '^0*$')
end

-- Why nothing may be reserved of what is stored here, or be written over it.
local function refusal(stored, here, failover)
  if not here.master then
    return 'replica'
  elseif stored == 'foreign' then
    return 'foreign'
  elseif stored and failover == 'refuse' and elsewhere(stored, here) then
    return 'promoted'
  end
  return nil
end

