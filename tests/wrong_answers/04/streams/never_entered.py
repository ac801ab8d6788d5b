# expects: all work ran on main
class TwoStreams:
    def cycles(self, journeys):
        main, sides = torch.cuda.current_stream(), [torch.cuda.Stream(), torch.cuda.Stream()]
        cycles = []
        for side, journey in zip(sides, journeys, strict=True):
            side.wait_stream(main)
            cycles.append(self.cycle(*journey))
            main.wait_stream(side)
        return tuple(cycles)
