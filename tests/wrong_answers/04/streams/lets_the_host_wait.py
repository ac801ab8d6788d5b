# expects: the host waits, in a `synchronize`
class TwoStreams:
    sides = None

    def both_cycles(self, model, real_a, real_b):
        main = torch.cuda.current_stream()
        self.sides = self.sides or [torch.cuda.Stream(), torch.cuda.Stream()]
        journeys = ((model.G_A, model.G_B, real_a, real_b), (model.G_B, model.G_A, real_b, real_a))
        cycles = []
        for side, journey in zip(self.sides, journeys, strict=True):
            side.wait_stream(main)
            with torch.cuda.stream(side), no_shared_casts(real_a.device.type):
                cycles.append(self.one_cycle(*journey))
        for side, cycle in zip(self.sides, cycles, strict=True):
            side.synchronize()
            for pictures in cycle:
                pictures.record_stream(main)
        return tuple(cycles)
