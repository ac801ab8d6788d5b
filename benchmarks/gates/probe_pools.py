"""Prints what compare feeds PoolSeedNotLoaded and CopyByAddress: run it with PYTHONPATH at the root."""
import sys, torch, warnings
warnings.simplefilter("ignore")
import labkit
from benchmarks.gates import more, steps
h=lambda self: [hash(p.random.getstate())%10000 for p in self.model.pools.values()]
class Probe(steps.PoolSeedNotLoaded):
    def load_state_dict(self, state):
        b=h(self); super().load_state_dict(state); print('load', next(self.model.parameters()).dtype, 'before', b, 'after', h(self), 'in the state', [hash(p['random'])%10000 for p in state['pools'].values()])
    def inputs(self, a, b):
        r=h(self); x=super().inputs(a,b)
        print('inputs', tuple(a.shape), r, x['draw_fake_A'].tolist(), x['draw_fake_B'].tolist()); return x
more.MORE['p']=(Probe,(),50,2); more.judge('p')
print("by address")
class Probe2(steps.CopyByAddress):
    def inputs(self, a, b):
        key = (a.data_ptr(), b.data_ptr(), a.shape, a.dtype)
        hit = key==self.key; x=super().inputs(a,b)
        print(tuple(a.shape), str(a.dtype), 'same address' if hit else 'new', 'STALE' if not torch.equal(x['real_a'],a) else ''); return x
more.MORE['p']=(Probe2,(),50,2); more.judge('p')
