# expects: the second call makes new streams
class TwoStreams:
    def both_cycles(self, model, real_a, real_b):
        main, sides = torch.cuda.current_stream(), [torch.cuda.Stream(), torch.cuda.Stream()]
        journeys = ((model.G_A, model.G_B, real_a, real_b), (model.G_B, model.G_A, real_b, real_a))
        cycles = []
        for side, journey in zip(sides, journeys, strict=True):
            side.wait_stream(main)
            with torch.cuda.stream(side), no_shared_casts(real_a.device.type):
                cycles.append(self.one_cycle(*journey))
        for side, cycle in zip(sides, cycles, strict=True):
            main.wait_stream(side)
            for pictures in cycle:
                pictures.record_stream(main)
        return tuple(cycles)
