# expects: all work ran on main
class TwoStreams:
    def both_cycles(self, model, real_a, real_b):
        main, sides = torch.cuda.current_stream(), [torch.cuda.Stream(), torch.cuda.Stream()]
        journeys = ((model.G_A, model.G_B, real_a, real_b), (model.G_B, model.G_A, real_b, real_a))
        cycles = []
        for side, journey in zip(sides, journeys, strict=True):
            side.wait_stream(main)
            cycles.append(self.one_cycle(*journey))
            main.wait_stream(side)
        return tuple(cycles)
